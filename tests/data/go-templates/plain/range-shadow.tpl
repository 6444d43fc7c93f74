{{ $x := "top" }}{{ range $x := .words }}{{ $x }}{{ range $x := $.numbers }}{{ $x }}{{ end }}{{ $x }} {{ end }}{{ $x }}
