"""What people write (jobs, clusters, tenants), what it becomes, and the device catalogue.

| module         | what is there                                                            |
|----------------|--------------------------------------------------------------------------|
| `job`          | `JobSpec`, `read_job`, `parse_job`                                       |
| `cluster_spec` | `ClusterSpec`, `read_cluster`, `parse_cluster`                           |
| `tenant`       | `TenantSpec`, `Share`, `read_tenants`, `parse_tenants`                   |
| `shorthand`    | `load_cluster` (file or `16x4xT4`), `parse_cluster_shorthand`            |
| `schema`       | `json_schema`                                                            |
| `devices`      | `Device`, `device`, `catalogue`                                          |
| `cluster`      | `Cluster`, `Node`: the machines as the rest of the code sees them        |
| `topology`     | `read_topology`: hosts and switches from a table                         |
| `fat_tree`     | `fat_tree`, `k_ary_fat_tree`: generated networks                         |
| `subtrees`     | the switches of a cluster as arrays                                      |
| `allocation`   | `Allocation`, `Footprint`: what a job holds                              |
| `band`         | `Band`: production and batch                                             |
| `source`       | YAML with places; `problems` and `fields` turn it into models            |

Nothing is imported here: what reads files needs pydantic and PyYAML, which would slow down every
command, even those that read no file.
"""
