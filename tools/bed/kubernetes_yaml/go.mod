// The parser of YAML that the newest Kubernetes of the bed has. Kubernetes has had sigs.k8s.io/yaml v1.6.0 since 1.34.
module outoftree.example/bed/kubernetes-yaml

go 1.24

require sigs.k8s.io/yaml v1.6.0

require go.yaml.in/yaml/v2 v2.4.4 // indirect
