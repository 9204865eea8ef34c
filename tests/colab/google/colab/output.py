"""Calls that change Colab's page; here they do nothing."""


def enable_custom_widget_manager():
    pass


def disable_custom_widget_manager():
    pass


def no_vertical_scroll():
    pass
