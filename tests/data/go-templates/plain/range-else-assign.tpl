{{ range $i, $w := .none }}{{ $w = 1 }}{{ else }}{{ $w }}{{ $w = "x" }}{{ $w }}{{ $i }}{{ end }}
