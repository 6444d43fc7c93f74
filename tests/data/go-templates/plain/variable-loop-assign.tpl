{{ range $i, $w := .words }}{{ $w = printf "%s%d" $w $i }}{{ $i = 9 }}{{ $w }}{{ $i }} {{ end }}
