{{ printf
  "%s %d"
  .name
  .n
}}
