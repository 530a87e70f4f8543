"""The settings in effect, without secrets, each with an explanation."""

from fastapi import APIRouter, Response

from app.web.admin import setting_descriptions
from app.web.admin.double_clicks import AdminRoute
from app.web.admin.sign_in import Reader
from app.web.api import settings as api

router = APIRouter(include_in_schema=False, route_class=AdminRoute)


@router.get("/admin/settings")
def show_settings(operator: Reader) -> Response:
    listed = api.list_settings(operator)
    settings_by_name = {setting.name: setting for setting in listed.items}
    return operator.page(
        "admin/settings.html", settings=settings_by_name, groups=setting_descriptions.group(settings_by_name)
    )
