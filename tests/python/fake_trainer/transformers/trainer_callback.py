class CallbackHandler:
    def on_step_begin(self, args, state, control):
        return control

    def on_pre_optimizer_step(self, args, state, control):
        return control
