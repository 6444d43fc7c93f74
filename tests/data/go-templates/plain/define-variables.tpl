{{ $x := "outer" }}{{ define "x" }}{{ $x := . }}{{ $x }}{{ $x = 7 }}{{ $x }}{{ end }}{{ template "x" "inner" }}{{ $x }}
