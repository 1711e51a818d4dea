# SPDX-License-Identifier: Apache-2.0
"""Helpers for providers: a provider may import these modules besides `ccm.cloud`. The framework imports none of them.

`connected_cloud` is the base of a provider with one connection, and `json_api` calls a cloud's JSON API with aiohttp.
`access_tokens` fetches tokens for it. `gcfg`, `gcfg_sections`, `setting_kinds` and `located_yaml` read a configuration,
`limit_settings` has the keys that all configurations share, and `annotation_reader` reads the annotations of Services.
`service_checks` refuses or reports Services that nobody would serve.
`ownership_marks` identifies the owner of a load balancer, and `digests` what was last written to it.
`shared_balancers` and `shared_reads` let Services read and write concurrently; `steps` applies changes without waiting.
`recent` limits what a provider remembers. `untrusted_text` makes text of others safe for messages.
`kept_settings` reports settings that an existing load balancer cannot get. `kept_load_balancers` has the rules for load
balancers that outlive their Service.
`limited_members` chooses nodes where a load balancer has no room for all.
`backend_addresses`, `pod_ranges`, `rule_changes` and `retry_after` are small decisions that many clouds need.
"""
