"""The work of `raypoly judge` on files: label groups, audit a judge by gold groups.

    label_file(Path("groups.jsonl"), "labels.jsonl", choose_judge("openai", ["judge.votes=3"]))
    (audited,) = audit(read_gold_groups(), [choose_judge("structural", [])], runs=2)

Programs run in sandboxes of this machine, which also find what a judge reads of them. Neither Ray nor a GPU is needed.
"""
