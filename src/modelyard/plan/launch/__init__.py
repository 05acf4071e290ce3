"""Settings that start a plan, for the tools that people train with.

| module        | what is there                                                       |
|---------------|---------------------------------------------------------------------|
| `launchers`   | `launch`: the settings of a plan for a tool, by the tool's name     |
| `settings`    | `LaunchSettings`: files, a command and what to know about them      |
| `machines`    | how devices become nodes and processes; `torchrun`                  |
| `yard_job`    | a job of this yard                                                  |
| `speed_files` | the job's speed over device counts, for the simulator               |
| `trainer`     | what FSDP and DeepSpeed share: options of Hugging Face's `Trainer`  |
| `fsdp`        | torchrun with PyTorch's FSDP                                        |
| `deepspeed`   | DeepSpeed's ZeRO                                                    |
| `megatron`    | Megatron-LM                                                         |

What a tool cannot express is refused, with the pins under which it could; nothing is left out in
silence.
"""
