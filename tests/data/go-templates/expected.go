// Writes NAME.expected for each NAME.tpl of plain/ and kube2lb/ with Go's own text/template:
//
//	cd tests/data/go-templates && go run expected.go
//
// Templates of plain/ get NAME.json, else data.json; those of kube2lb/ get NAME.json, else cluster.json, as the records
// that kube2lb's document "cluster information schema" describes, and functions of the same names as kube2lb's.
// forms.json is what Go prints for each of `forms` with each of `values` in the place of X, null where Go stops;
// of long texts the first 100 characters.
package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

type Port struct {
	IP       net.IP
	Port     int32
	Mode     string
	Protocol string
}

func (p Port) String() string {
	return fmt.Sprintf("%s_%d_%s_%s", hex.EncodeToString(p.IP.To4()), p.Port, p.Protocol, p.Mode)
}

type Endpoint struct {
	Name string
	IP   net.IP
	Port int32
}

func (e Endpoint) String() string { return fmt.Sprintf("%s:%d", e.IP, e.Port) }

type Service struct {
	Name      string
	Namespace string
	Port      Port
	Endpoints []Endpoint
	NodePort  int32
	External  []string
	Timeout   int
}

func (s Service) String() string {
	return fmt.Sprintf("%s_%s_%d_%s_%s", s.Name, s.Namespace, s.Port.Port, s.Port.Protocol, s.Port.Mode)
}

type ClusterInformation struct {
	Nodes    []string
	Services []Service
	Ports    []Port
	Domain   string
}

type ServerName string

func (n ServerName) IsRegexp() bool { return strings.HasPrefix(string(n), "~") }
func (n ServerName) Regexp() string { return strings.TrimPrefix(string(n), "~") }

func serverNames(service Service, domain string) []ServerName {
	names := []ServerName{ServerName(service.Name + "." + service.Namespace + ".svc." + domain)}
	for _, name := range service.External {
		names = append(names, ServerName(name))
	}
	return names
}

var functions = template.FuncMap{
	"ServerNames": serverNames,
	"EscapeNode":  strings.NewReplacer(".", "_", ":", "_").Replace,
	"IntRange": func(n, initial, step int) []int {
		values := []int{}
		for i := 0; i < n; i++ {
			values = append(values, initial+i*step)
		}
		return values
	},
	"Add": func(values ...int) int {
		sum := 0
		for _, value := range values {
			sum += value
		}
		return sum
	},
	"ToLower": strings.ToLower,
	"ToUpper": strings.ToUpper,
}

// Whole numbers become int, as they are in a program's own data.
func plain(value interface{}) interface{} {
	switch typed := value.(type) {
	case json.Number:
		if whole, err := typed.Int64(); err == nil {
			return int(whole)
		}
		float, err := typed.Float64()
		check(err)
		return float
	case []interface{}:
		for index := range typed {
			typed[index] = plain(typed[index])
		}
	case map[string]interface{}:
		for key := range typed {
			typed[key] = plain(typed[key])
		}
	}
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func data(path string, fallback string) *json.Decoder {
	text, err := os.ReadFile(strings.TrimSuffix(path, ".tpl") + ".json")
	if err != nil {
		text, err = os.ReadFile(fallback)
	}
	check(err)
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return decoder
}

func render(path string, functions template.FuncMap, value interface{}) {
	text, err := os.ReadFile(path)
	check(err)
	parsed, err := template.New(filepath.Base(path)).Funcs(functions).Parse(string(text))
	check(err)
	var out bytes.Buffer
	check(parsed.Execute(&out, value))
	check(os.WriteFile(strings.TrimSuffix(path, ".tpl")+".expected", out.Bytes(), 0o644))
}

var values = []string{
	"$", "$.Services", "$.Nodes", "$s", "$s.Port.IP", "(index $s.Endpoints 0)", "$s.External", "$s.Timeout", "$s.Name",
	`(index (ServerNames $s "d") 0)`, "(IntRange 2 1 1)", "true", "nil", "1.5", "(and $s $s.Port)", "(or $s.Port.IP 1)",
}

var forms = []string{
	"{{ X }}", "{{ print X }}", "{{ print X 1 }}", `{{ print "a" X }}`, "{{ println X }}", "{{ html X }}", "{{ urlquery X }}",
	"{{ len X }}", "{{ slice X 0 1 }}", "{{ X.Name }}", "{{ X.String }}", "{{ range X }}{{ . }},{{ end }}",
	"{{ $v := $s }}{{ $v = X }}{{ $v.Name }}", "{{ $v := $s }}{{ $v = X }}{{ $v }}", "{{ $v := X }}{{ $v }}{{ $v = 1 }}",
	`{{ $v := $s }}{{ $v = X }}{{ printf "%s" $v }}`, `{{ $l := "%s" }}{{ printf $l X }}`, "{{ printf X }}",
	`{{ printf "%v %v" X }}`, `{{ printf "%v" X X }}`, `{{ printf "%[1]v" X }}`,
}

var verbs = strings.Fields("%v %+v %#v %5v %-5v %.2v %s %5s %.2s %d %05d %.3d %+d %q %+q %#q %x %#x %t %c %U %#U %e %6.2f %g %T")

func writeForms() {
	all := forms
	for _, verb := range append(verbs, "% x", "% d") {
		all = append(all, `{{ printf "`+verb+`" X }}`)
	}
	out := bytes.NewBufferString("[\n")
	for _, form := range all {
		for _, value := range values {
			text := "{{ $s := index .Services 4 }}" + strings.ReplaceAll(form, "X", value)
			var cluster ClusterInformation
			check(data("", "cluster.json").Decode(&cluster))
			var given bytes.Buffer
			var result interface{}
			parsed, err := template.New("").Funcs(functions).Parse(text)
			if err == nil && parsed.Execute(&given, cluster) == nil {
				runes := []rune(given.String())
				result = string(runes[:min(len(runes), 100)])
			}
			if out.Len() > 2 {
				out.WriteString(",\n")
			}
			encoder := json.NewEncoder(out)
			encoder.SetEscapeHTML(false)
			check(encoder.Encode([]interface{}{text, result}))
			out.Truncate(out.Len() - 1)
		}
	}
	out.WriteString("\n]\n")
	check(os.WriteFile("forms.json", out.Bytes(), 0o644))
}

func main() {
	writeForms()
	paths, _ := filepath.Glob("plain/*.tpl")
	for _, path := range paths {
		var value interface{}
		check(data(path, "data.json").Decode(&value))
		render(path, template.FuncMap{}, plain(value))
	}
	paths, _ = filepath.Glob("kube2lb/*.tpl")
	for _, path := range paths {
		var value ClusterInformation
		check(data(path, "cluster.json").Decode(&value))
		render(path, functions, value)
	}
}
