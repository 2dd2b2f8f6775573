"""`penstock doctor`: checks of the set-up, each with what to do. They work while the platform is stopped."""
