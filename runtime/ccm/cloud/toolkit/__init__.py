# SPDX-License-Identifier: Apache-2.0
"""What providers share: a provider may import these modules beside `ccm.cloud`, and the framework imports none of them.

`json_api` is a cloud's JSON API on aiohttp. `gcfg`, `gcfg_sections` and `setting_kinds` read a configuration,
`annotation_reader` the annotations of Services. `ownership_marks` says whose a load balancer is, `shared_balancers` and
`shared_reads` let Services look and write side by side, `steps` changes without waiting. `backend_addresses`,
`rule_changes` and `retry_after` are small decisions that clouds have in common.
"""
