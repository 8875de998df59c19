def save_checkpoint(iteration):
    print(f"saved {iteration}")


def load_checkpoint(model, optimizer, load_arg="load"):
    return 100
