"""`keplab rotate`: renew the certificates of a mesh while it runs."""

from pathlib import Path

import click

from lab.cli.output import EXIT_FAILED, EXIT_OK, data_option, fail, output_option, print_json, print_table
from lab.experiments.wording import count_text
from services.api.times import format_time
from services.runtime.rotation import FOLDER, change_authority, mesh_certificates, renew, wait_until_used

EPILOG = """\
\b
Examples:
  keplab rotate
  keplab rotate --authority
  keplab rotate -o json | jq -r '.certificates[].expires'

\b
With --authority, in this order:
  1  a new authority is made; processes trust both authorities, and kubeconfigs have both
  2  every certificate is renewed and signed by the new authority
  3  the old authority is no longer trusted
Each step waits until every process of the mesh uses the new files. Clients with an older kubeconfig of this mesh need
the new kubeconfig after step 3. The next rotation continues one that was interrupted.
"""


@click.command("rotate", epilog=EPILOG)
@data_option
@click.option("--authority", is_flag=True, help="also replace the authority that signs the certificates")
@output_option
def rotate(data: Path, authority: bool, output: str) -> int:
    """Renew the certificates of the mesh now.

    No process is restarted. A running mesh renews its certificates by itself before they expire (`keplab up
    --certificate-life`).
    """
    if not (data / FOLDER / "ca.key").exists():
        fail(f"no mesh has run on {data}; start one with `keplab up`", EXIT_FAILED)

    def print_text(text: str) -> None:
        if output != "json":
            click.echo(text)

    try:
        if authority:
            change_authority(data, print_text)
        else:
            renewed = renew(data, all_of_them=True)
            used_by = wait_until_used(data)
            print_text(
                f"{count_text(len(renewed), 'certificate is', 'certificates are')} renewed"
                + (f"; {count_text(used_by, 'process uses', 'processes use')} them" if used_by else "")
            )
        certificates = mesh_certificates(data)
    except (OSError, ValueError) as error:
        fail(f"{data / FOLDER}: {error}")
    rows = [(each.name, each.subject, format_time(each.not_after.timestamp())) for each in certificates]
    if output == "json":
        print_json({"certificates": [dict(zip(("name", "subject", "expires"), row, strict=True)) for row in rows]})
    else:
        click.echo()
        print_table(("NAME", "SUBJECT", "EXPIRES"), rows)
    return EXIT_OK
