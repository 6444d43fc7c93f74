{{ $z := "a" }}{{ if $z = slice $z 1 }}yes{{ else }}no{{ end }}[{{ $z }}]{{ if $q := .name }}{{ $q = slice $q 1 }}{{ $q }}{{ end }}
