{{ $x := .n }}{{ if true }}{{ $x := printf "<%d>" $x }}{{ $x }}{{ end }}{{ $x }}
