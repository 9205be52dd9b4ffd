"""A page for each class of failed deployment (GP701 to GP799)."""

from gpuplan.present.deploy_findings_diagnosis import DIAGNOSED
from gpuplan.present.page import Page

PAGES: tuple[Page, ...] = tuple(item.page() for item in DIAGNOSED)
