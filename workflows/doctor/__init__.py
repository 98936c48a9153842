"""The doctor: is a run whole, and where would it resume (`run_check`)? Is this machine ready (`machine`)?"""
