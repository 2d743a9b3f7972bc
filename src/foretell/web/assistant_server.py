"""`foretell mcp`: the tools of assistant.py over the Model Context Protocol, by its official Python SDK.

Resources are the catalogue (`foretell://catalog/models` and the like, each entry by its name) and published
runs beside our predictions (`foretell://accuracy`).
"""

import json
from typing import TYPE_CHECKING, Any

from foretell import __version__
from foretell.errors import BadInput
from foretell.web import lists
from foretell.web.assistant import call, short, tools

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

INSTRUCTIONS = (
    "Foretell predicts what a transformer costs before it is run: time, memory, parallel plan, energy and "
    "money of training, fine-tuning and serving. Name models and systems as the catalogue does (tools "
    "catalog and catalog_show); write gpus as 64xH100. Every answer has its 90 % interval and what was "
    "assumed: say both."
)
KINDS = ("models", "systems", "chips")
SCHEME = "foretell://"
MIME = "application/json"


def make_server() -> "Server[Any]":
    """The server, with no transport yet."""
    import mcp_types as types
    from anyio import to_thread
    from mcp.server.lowlevel import Server

    async def list_tools(context: Any, params: Any) -> Any:
        known = [types.Tool.model_validate(_tool(one)) for one in tools()]
        return types.ListToolsResult(tools=known)

    async def call_tool(context: Any, params: Any) -> Any:
        found = await to_thread.run_sync(call, params.name, params.arguments or {})
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=found.text)],
            structured_content=found.record,
            is_error=found.failed,
        )

    async def list_resources(context: Any, params: Any) -> Any:
        about = {
            **{f"catalog/{kind}": f"Every one of the {kind} of the catalogue." for kind in KINDS},
            "accuracy": "Published training steps beside our predictions.",
        }
        known = [
            types.Resource(uri=SCHEME + name, name=name, description=text, mime_type=MIME)
            for name, text in about.items()
        ]
        return types.ListResourcesResult(resources=known)

    async def list_templates(context: Any, params: Any) -> Any:
        entry = types.ResourceTemplate(
            uri_template=SCHEME + "catalog/show/{name}",
            name="catalog entry",
            description="One chip, system or model with its sources.",
            mime_type=MIME,
        )
        return types.ListResourceTemplatesResult(resource_templates=[entry])

    async def read_resource(context: Any, params: Any) -> Any:
        text = await to_thread.run_sync(resource_text, str(params.uri))
        held = types.TextResourceContents(uri=params.uri, mime_type=MIME, text=text)
        return types.ReadResourceResult(contents=[held])

    return Server(
        "foretell",
        version=__version__,
        title="Foretell",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
    )


def _tool(one: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": one["name"],
        "description": one["description"],
        "inputSchema": one["input_schema"],
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }


def resource_text(uri: str) -> str:
    """What a resource holds, as JSON; ValueError where there is none of that name."""
    name = uri.removeprefix(SCHEME)
    if name == "accuracy":
        rows = lists.published_rows({})
        return json.dumps({"rows": len(rows), **short({"published": rows})}, default=str)
    kind = name.removeprefix("catalog/")
    if kind in KINDS:
        return json.dumps(lists.catalogue({"kind": kind}), default=str)
    if name.startswith("catalog/show/"):
        try:
            return json.dumps(lists.show_entry({"name": kind.removeprefix("show/")}), default=str)
        except BadInput as error:
            raise ValueError(str(error)) from None
    known = ", ".join(f"{SCHEME}catalog/{one}" for one in KINDS)
    raise ValueError(f"no resource {uri}; there are {known}, {SCHEME}accuracy")


async def serve_stdio() -> None:
    """Answer on standard input and output until they are closed."""
    from mcp.server.stdio import stdio_server

    server = make_server()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
