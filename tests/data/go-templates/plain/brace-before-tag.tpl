a{ {{- .name -}} }b{%{{ .name }}%}c#{{ .name }}#d
