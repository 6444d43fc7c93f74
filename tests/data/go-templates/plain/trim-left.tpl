a   

  {{- .name }}   b
