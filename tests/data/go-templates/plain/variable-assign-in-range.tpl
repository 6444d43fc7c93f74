{{ $last := "none" }}{{ range .words }}{{ $last = . }}{{ end }}{{ $last }}
