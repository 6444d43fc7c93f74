{{ $t := 0 }}{{ range .mixed }}{{ $t = . }}{{ end }}{{ $t }} {{ $b := true }}{{ if .yes }}{{ $b = 5 }}{{ end }}{{ $b }}
