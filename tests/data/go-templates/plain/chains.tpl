{{ .map.c.d }} {{ $m := .map }}{{ $m.c.d }} {{ index .map.c.d 0 }} {{ .keys.items }}{{ .keys.values }}{{ .keys.get }} {{ .items }}
