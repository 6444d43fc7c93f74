{{ range $i, $outer := .nested }}{{ $i }}({{ range $j, $inner := $outer }}{{ $i }}.{{ $j }}={{ $inner }} {{ else }}empty{{ end }}){{ end }}
