"""Judge 30 digests as a mailbox receives them: signatures, spam filters, HTML.

    python -m benchmarks.received --days ../shared/data/hf_daily [--vnu vnu.jar]

Ten readers get their digests of the last three recorded days over SMTP, signed by RSA and Ed25519. dkimpy and
SpamAssassin are required. Mail::DKIM (Perl), rspamd (`rspamc`, with a daemon on port 11334) and the Nu Html
Checker (`npm pack vnu-jar`) are used if they are installed. The sending domain is not in the DNS, for which
rspamd gives points.
"""

import argparse
import json
import re
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import dkim as dkimpy

from app import main, pipeline
from app.mail import dkim
from app.settings import Settings
from app.storage import schema
from app.types import EmptyDigestPolicy
from tests.mail.test_spam import INTERESTS
from tests.support import factories, spamassassin
from tests.support.mail_server import MailServer, Received

DOMAIN = "papers.example.org"
DAYS, EARLIER_DAYS = 3, 6
PERL = r"""
use JSON::PP; use Mail::DKIM::Verifier; use Mail::DKIM::DNS; local $/;
my $records = decode_json(shift);
{ package Record; sub type { "TXT" } sub txtdata { ${$_[0]} } }
{ no warnings; *Mail::DKIM::DNS::query = sub { my $t = $records->{$_[0]}; $t ? bless(\$t, "Record") : () } }
for my $file (@ARGV) {
    open my $mail, "<:raw", $file; my $verifier = Mail::DKIM::Verifier->new;
    $verifier->PRINT(<$mail>); $verifier->CLOSE;
    print map { $_->algorithm . " " . $_->result_detail . "\n" } $verifier->signatures;
}
"""


def receive(days: Sequence[Path], folder: Path) -> tuple[list[Received], datetime, dict[str, str]]:
    """Send the digests. Return the emails, the time of the last ones, and the DNS records of the keys."""
    for algorithm in dkim.Algorithm:
        dkim.create(algorithm, folder / algorithm)
    keys = tuple(f"{algorithm}:{folder / algorithm}" for algorithm in dkim.Algorithm)
    with MailServer() as server:
        settings = Settings(
            _env_file=None, database_url=f"sqlite:///{folder}/paperboy.db", dkim_keys=keys,
            secret_keys=("0123456789abcdef" * 2,),
            smtp_host="127.0.0.1", smtp_port=server.port, smtp_tls="none",
            base_url=f"https://{DOMAIN}", from_address=f"digest@{DOMAIN}", postal_address="1 Example Street",
            journal_dir=f"{folder}/journals", search_dir=f"{folder}/search",
        )  # fmt: skip
        schema.migrate(settings.database_url)
        app = main.build(settings)
        for number, file in enumerate(days):
            day = date.fromisoformat(file.stem[:10])
            eight = datetime.combine(day, datetime.min.time(), UTC) + timedelta(hours=8)
            if number == len(days) - DAYS:
                with app.db.write() as session:
                    for reader, interests in enumerate(INTERESTS):
                        usual = {"max_papers": 5 + 2 * reader, "when_empty": EmptyDigestPolicy.TRENDING}
                        factories.add_subscriber(session, f"{reader}@example.net", interests, eight, **usual)
            pipeline.read_files(app, [file], eight - timedelta(hours=3), day=day)
            pipeline.plan_and_send(app, eight)
        app.db.dispose()
        return list(server.messages), eight, dict(key.record(DOMAIN) for key in dkim.load(keys))


def verify(mail: bytes, records: Mapping[str, str]) -> Counter[str]:
    """Count the signatures by algorithm and result, by dkimpy."""

    def answer(name: bytes, timeout: int = 5) -> bytes:
        return records[name.decode().rstrip(".")].encode()

    algorithms = re.findall(rb"a=([a-z0-9]+)-sha256", mail)
    results = (dkimpy.DKIM(mail).verify(idx=place, dnsfunc=answer) for place, _ in enumerate(algorithms))
    return Counter(
        f"{a.decode()} {'pass' if ok else 'fail'}" for a, ok in zip(algorithms, results, strict=True)
    )


def judge_elsewhere(command: Sequence[str | Path]) -> str:
    """Return the output of another program, or the reason why there is none."""
    try:
        done = subprocess.run([*command], capture_output=True, text=True, timeout=300)  # noqa: S603
    except OSError as error:
        return str(error)
    return done.stdout + done.stderr


def counted(lines: Sequence[str]) -> str:
    return "; ".join(f"{count} × {line}" for line, count in Counter(lines).most_common()) or "none"


def run() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--days", type=Path, required=True, metavar="FOLDER", help="the recorded days")
    parser.add_argument("--vnu", type=Path, metavar="JAR", help="the Nu Html Checker")
    arguments = parser.parse_args()
    days = sorted(arguments.days.glob("*.json"))[-DAYS - EARLIER_DAYS :]
    with TemporaryDirectory() as name:
        folder = Path(name)
        mails, at, records = receive(days, folder)
        verdicts = spamassassin.score_mails(mails, at, folder)
        files = sorted(folder.glob("*.eml"), key=lambda file: int(file.stem))
        html = [file.with_suffix(".html") for file in files]
        for file, mail in zip(html, mails, strict=True):
            file.write_text(mail.parsed().get_body(("html",)).get_content(), encoding="utf-8")  # type: ignore[union-attr]
        signatures = sum((verify(mail.data, records) for mail in mails), Counter[str]())
        print(f"{len(mails)} emails; dkimpy: {dict(signatures)}")
        print(f"SpamAssassin: {min(v.score for v in verdicts)} to {max(v.score for v in verdicts)}")
        perl = judge_elsewhere(["perl", "-e", PERL, json.dumps(records), *files])
        print(f"Mail::DKIM: {counted(perl.splitlines())}")
        symbols = re.findall(r"^Symbol: (\w+ \([\d.]+\))", judge_elsewhere(["rspamc", *files]), re.MULTILINE)
        print(f"rspamd, symbols with points: {counted([s for s in symbols if not s.endswith('(0.00)')])}")
        if arguments.vnu:
            found = judge_elsewhere(["java", "-jar", arguments.vnu, "--errors-only", *html])
            print(f"vnu: {counted([line.partition(': error: ')[2] for line in found.splitlines()])}")


if __name__ == "__main__":
    run()
