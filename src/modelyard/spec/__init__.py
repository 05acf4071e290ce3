"""What people write (jobs, clusters, tenants), what it becomes, and the device catalogue.

| module          | what is there                                                            |
|-----------------|--------------------------------------------------------------------------|
| `job`           | `JobSpec`, `read_job`, `parse_job`                                       |
| `cluster_spec`  | `ClusterSpec`, `read_cluster`, `parse_cluster`                           |
| `tenant`        | `TenantSpec`, `Share`, `read_tenants`, `parse_tenants`                   |
| `shorthand`     | `load_cluster` (file or `16x4xT4`), `parse_cluster_shorthand`            |
| `schema`        | `json_schema`                                                            |
| `devices`       | `Device`, `device`, `catalogue`                                          |
| `model`         | `Model`, `Parameters`: a language model as the planner sees it           |
| `traits`        | `Traits`: norms, biases, tables: what widths do not say                  |
| `weights`       | `weights`, `counted`: every weight by name; exact parameters             |
| `model_source`  | `load_model` (name, config, folder), `plain_model`                       |
| `zoo`           | `zoo`, `find_model`: models by the names that people type                |
| `hugging_face`  | `read_config`: a `config.json` or its folder                             |
| `architectures` | how each `model_type` writes its config                                  |
| `model_config`  | `ModelConfig`: typed fields of a config, with all problems               |
| `plain`         | `plain_model`: a model from plain numbers                                |
| `rescaled`      | `scaled`: the same architecture at another depth or width                |
| `shape_limits`  | what the numbers of a model may be                                       |
| `tuning`        | `Tuning`, `Method`: what of a model is trained                           |
| `adapters`      | `full_training`, `lora`: trainable parameters as PEFT counts them        |
| `cluster`       | `Cluster`, `Node`: the machines as the rest of the code sees them        |
| `topology`      | `read_topology`: hosts and switches from a table                         |
| `fat_tree`      | `fat_tree`, `k_ary_fat_tree`: generated networks                         |
| `subtrees`      | the switches of a cluster as arrays                                      |
| `allocation`    | `Allocation`, `Footprint`: what a job holds                              |
| `band`          | `Band`: production and batch                                             |
| `source`        | YAML with places; `problems` and `fields` turn it into models            |

Nothing is imported here: what reads files needs pydantic and PyYAML, which would slow down every
command, even those that read no file.
"""
