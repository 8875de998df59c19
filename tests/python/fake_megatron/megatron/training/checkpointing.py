def save_checkpoint(iteration):
    print(f"saved {iteration}")


def load_checkpoint(model, optimizer, load_arg="load"):
    optimizer.sharded_state_dict({}, is_loading=True)
    return 100
