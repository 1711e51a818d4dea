// The libraries with which the cloud providers of Kubernetes read their configurations.
module outoftree.example/bed/cloud-configs

go 1.24

require (
	gopkg.in/gcfg.v1 v1.2.3
	gopkg.in/yaml.v2 v2.4.0
)

require gopkg.in/warnings.v0 v0.1.2 // indirect
