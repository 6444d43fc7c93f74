{{ with $x := .empty }}a{{ else }}[{{ $x }}]{{ .name }}{{ end }}
