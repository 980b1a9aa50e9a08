"""A model file's chat template is a stranger's program: it runs here with bounds in time and in memory."""

from __future__ import annotations

from octavo.templating.budget import TemplateLimitError
from octavo.templating.environment import TemplateEnvironment
from octavo.templating.watchdog import OutOfTimeError, Watchdog

__all__ = ["OutOfTimeError", "TemplateEnvironment", "TemplateLimitError", "Watchdog"]
