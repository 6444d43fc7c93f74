{{ $nodes := .Nodes -}}
{{ $all := .Services -}}
{{ $zone := .Domain -}}
{{ $listeners := .Ports -}}
global
	maxconn 2048

defaults
	mode    http
	option  dontlognull
	timeout connect 2s
	timeout client  90s
	timeout server  90s

{{ range $at, $listener := $listeners }}{{ if ne $listener.Protocol "udp" }}
frontend listen_{{ $listener.String }}
	bind *:{{ $listener.Port }}
{{- range $at, $one := $all }}
{{- if eq $one.Port.String $listener.String }}
{{- $id := printf "%s_%s_%s" $one.Namespace $one.Name $one.Port }}
{{- if eq $listener.Mode "http" }}
	{{ range $host := ServerNames $one $zone }}
	{{- if $host.IsRegexp }}
	acl is_{{ $id }} hdr_reg(host) {{ $host.Regexp }}
	{{- else }}
	acl is_{{ $id }} hdr(host) -i {{ $host }}
	{{- end }}
	{{- end }}
	use_backend to_{{ $id }} if is_{{ $id }}
{{- end }}
{{- if eq $listener.Mode "tcp" }}
	mode tcp

	use_backend to_{{ $id }}
{{- end }}
{{- end }}
{{- end }}
{{ end }}{{ end }}

{{- range $at, $one := $all }}{{ if ne $one.Port.Protocol "udp" }}
{{- $id := printf "%s_%s_%s" $one.Namespace $one.Name $one.Port }}
backend to_{{ $id }}
	balance roundrobin
{{- if eq $one.Port.Mode "tcp" }}
	mode tcp
{{- end }}
	{{ range $at, $node := $nodes }}
	server {{ EscapeNode $node }} 10.2.0.{{ Add $at 1 }}:{{ $one.NodePort }} check{{ end }}
{{ end }}{{ end }}
