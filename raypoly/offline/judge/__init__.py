"""What `raypoly judge` does with files: label groups, audit a judge by gold groups, look after the kept answers.

    label_file(Path("groups.jsonl"), "labels.jsonl", chosen("openai", ["judge.votes=3"]))
    (audited,) = audit(groups(), [chosen("structural", [])], runs=2)

Programs run in sandboxes of this machine, which also find what a judge reads of them. Neither Ray nor a GPU is needed.
"""
