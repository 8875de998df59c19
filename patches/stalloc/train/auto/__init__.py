"""Mode Auto: whose plan a start has, tracing, planning and taking the plan up in one run."""
