{{ $first := true }}{{ range .words }}{{ if $first }}{{ $first = false }}{{ else }}, {{ end }}{{ . }}{{ end }} {{ $first }}
