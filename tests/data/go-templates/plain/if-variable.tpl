{{ if $x := .name }}{{ $x }}{{ end }}{{ if $y := .empty }}{{ $y }}{{ else }}[{{ $y }}]{{ end }}
