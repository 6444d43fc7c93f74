{{ if $x := .empty }}a{{ else if $y := .name }}{{ $y }}[{{ $x }}]{{ else }}c{{ end }}
