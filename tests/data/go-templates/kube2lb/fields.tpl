{{ range $i, $s := .Services }}{{ $i }} {{ $s.Name }} {{ $s.Namespace }} {{ $s.Port.IP }} {{ $s.Port.Port }} {{ $s.Port.Mode }} {{ $s.Port.Protocol }} {{ $s.NodePort }} {{ $s.External }} {{ $s.Timeout }} {{ len $s.Endpoints }}
{{ end }}{{ .Domain }} {{ .Nodes }}
