// The parser of YAML that Kubernetes has (k8s.io/kubernetes 1.32 to 1.37 use these releases).
module outoftree.example/bed/kubernetes-yaml

go 1.24

require sigs.k8s.io/yaml v1.6.0

require go.yaml.in/yaml/v2 v2.4.2 // indirect
