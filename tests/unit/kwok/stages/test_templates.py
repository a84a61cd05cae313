"""The Go templates of Stages: every part of the language that is read, and the errors of what is not."""

import pytest

from services.kwok.stages.template_functions import Context
from services.kwok.stages.templates import Dialect, Template, TemplateError

POD = {
    "metadata": {"name": "web", "labels": {"b": "2", "a": "1"}},
    "spec": {"containers": [{"name": "x", "image": "i:1"}, {"name": "y"}], "hostNetwork": False},
    "status": {},
}
CONTEXT = Context(
    "2026-01-01T00:00:00Z", version="v1", node_name="n1", node_ip="10.0.0.1", node_port=10250, pod_ip="10.64.0.2"
)


def fill(text, given=POD):
    return Template(text).fill(given, CONTEXT)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("a {{ .metadata.name }} b", "a web b"),
        ("{{ . }}", "3") ,
        ("a  {{- 1 -}}  b", "a1b"),
        ("a{{/* no */}}b", "ab"),
        ("{{ .metadata.missing }}", "<no value>"),
        ("{{ $x := 1 }}{{ if true }}{{ $x = 2 }}{{ $x := 9 }}{{ end }}{{ $x }}", "2"),
        ("{{ if .status }}a{{ else if .spec }}b{{ else }}c{{ end }}", "b"),
        ("{{ with .metadata.none }}a{{ else }}{{ .metadata.name }}{{ end }}", "web"),
        ("{{ with $m := .metadata }}{{ $m.name }}{{ .name }}{{ $.spec.hostNetwork }}{{ end }}", "webwebfalse"),
        ("{{ range .spec.containers }}{{ .name }},{{ end }}", "x,y,"),
        ("{{ range $i, $c := .spec.containers }}{{ $i }}{{ $c.name }}{{ end }}", "0x1y"),
        ("{{ range $k, $v := .metadata.labels }}{{ $k }}={{ $v }} {{ end }}", "a=1 b=2 "),
        ("{{ range .spec.none }}a{{ else }}none{{ end }}", "none"),
        ("{{ range 3 }}{{ if eq . 1 }}{{ continue }}{{ end }}{{ . }}{{ end }}", "02"),
        ("{{ range 3 }}{{ if eq . 1 }}{{ break }}{{ end }}{{ . }}{{ end }}", "0"),
        ('{{ define "t" }}<{{ .v }}{{ $.v }}>{{ end }}{{ template "t" dict "v" 5 }}', "<55>"),
        ('{{ or .metadata.x "" "z" }}{{ and 1 0 2 }}{{ not 0 }}', "z0true"),
        ('{{ or true (index .spec.containers 9) }}', "true"),
        ('{{ eq .metadata.x "a" }} {{ eq 1 2 1 }} {{ ne "a" "b" }} {{ lt 1 2 }} {{ ge "b" "a" }}', "false true true true true"),
        ("{{ (index .spec.containers 0).image }}", "i:1"),
        ('{{ index .metadata.labels "a" }}{{ len .spec.containers }}', "12"),
        ('{{ .metadata.name | Quote }} {{ 5 | Quote }} {{ .none | Quote }}', '"web" "5" "null"'),
        ('{{ printf "%s-%d%%" .metadata.name 3 | upper }}', "WEB-3%"),
        ('{{ printf "%03d|%-4s|%4v|%+d|%.2f|%x|%*d" 7 "a" "b" 5 1.005 255 3 9 }}', "007|a   |   b|+5|1.00|ff|  9"),
        ('{{ printf "%.2s%05d%q%t" "abc" -12 "x" true }}', 'ab-0012"x"true'),
        ("{{ ceil 2.1 }} {{ floor 2.9 }} {{ int (ceil (divf 7 2)) }} {{ round 2.345 2 }}", "3 2 4 2.35"),
        ("{{ addf 1 2.5 }} {{ subf 5 1 0.5 }} {{ mulf 2 1.5 }} {{ divf 10 4 }} {{ float64 3 }}", "3.5 3.5 3 2.5 3"),
        ("{{ add1 4 }} {{ add 1 2 3 }} {{ sub 5 2 }} {{ mul 2 3 }} {{ mod -7 3 }} {{ div -7 2 }}", "5 6 3 6 -1 -3"),
        ('{{ default "d" .none }} {{ ternary 1 2 false }} {{ coalesce nil "" "c" }}', "d 2 c"),
        ("{{ Now }} {{ NodeName }} {{ NodeIP }} {{ NodeIPWith .x }} {{ NodePort }} {{ Version }}",
         "2026-01-01T00:00:00Z n1 10.0.0.1 10.0.0.1 10250 v1"),
        ('{{ PodIPWith "n1" false "u" "p" "ns" }} {{ PodIPWith "n1" true "u" "p" "ns" }}', "10.64.0.2 10.0.0.1"),
        ('{{ NodeIPsWith "n1" }}{{ range PodIPsWith "n1" false "u" "p" "ns" }}{{ . }}{{ end }}', "[10.0.0.1]10.64.0.2"),
        ("{{ `raw\\n` }}{{ \"tab\\t\\u0041\" }}", "raw\\ntab\tA"),
        ("{{ .metadata.labels }} {{ .spec.containers | len }}", "map[a:1 b:2] 2"),
        ("{{ range NodeConditions }}{{ .type }} {{ end }}",
         "Ready MemoryPressure DiskPressure PIDPressure NetworkUnavailable "),
    ],
)  # fmt: skip
def test_a_template_gives_what_go_gives(text, made):
    assert fill(text, 3 if text == "{{ . }}" else POD) == made


def test_yaml_is_moved_in_and_read_back_as_the_same_value():
    text = "spec:\n  {{ YAML .spec 1 }}\nat: 2026-01-01T00:00:00Z\n"

    assert Template(text).fill_yaml(POD, CONTEXT) == {"spec": POD["spec"], "at": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a\n{{ randAlpha 3 }}", "line 2: function 'randAlpha' is not supported"),
        ("{{ if true }}a", "an {{end}} is missing"),
        ("{{ end }}", "line 1: unexpected {{end}}"),
        ("a\n\n{{ .x ", "line 3: unclosed action"),
        ('{{ block "a" . }}{{ end }}', "{{block}} is not supported"),
        ("{{ break }}", "{{break}} outside {{range}}"),
        ("{{ 'a' }}", "unexpected \"'a'\""),
        ("{{ (eq 1 1 }}", r"a \) is missing"),
        ("{{ 1 2 }}", "arguments of what is no function"),
        ("{{ 1 | 2 }}", "after | comes a function"),
        ("{{ }}", "a value is missing"),
    ],
)
def test_a_template_that_cannot_be_read_is_an_error_with_its_line(text, said):
    with pytest.raises(TemplateError) as reported:
        Template(text)
    assert said.replace("\\", "") in str(reported.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n\n{{ .none.more }}", "nil has no field .more"),
        ("a\n{{ index .spec.containers 9 }}", "line 2: index: index out of range: 9"),
        ('{{ eq 1 "a" }}', "incompatible types"),
        ("{{ eq true 1 }}", "incompatible types"),
        ("{{ eq .spec.hostNetwork 0 }}", "incompatible types"),
        ('{{ template "none" }}', "template 'none' is not defined"),
        ('{{ define "t" }}{{ template "t" }}{{ end }}{{ template "t" }}', "without end"),
        ("{{ $x }}", "variable $x is not declared"),
        ("{{ range true }}{{ end }}", "range cannot go over 'true'"),
        ("{{ add1 }}", "add1: "),
    ],
)
def test_a_template_that_cannot_be_filled_is_an_error_with_its_line(text, said):
    with pytest.raises(TemplateError) as reported:
        fill(text)
    assert said in str(reported.value)
    assert str(reported.value).startswith("line ")


def test_what_is_no_yaml_is_an_error_and_not_a_patch():
    with pytest.raises(TemplateError, match="no YAML: line 2"):
        Template("a: [{{ 1 }}").fill_yaml(POD, CONTEXT)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5.0, "5"),
        (0.1, "0.1"),
        (123456.0, "123456"),
        (1048576.0, "1.048576e+06"),
        (-2e9, "-2e+09"),
        (1e-5, "1e-05"),
        (0.0, "0"),
    ],
)
def test_floats_are_printed_with_the_digits_that_identify_them(value, text):
    assert Template("{{ .v }}").fill({"v": value}, Context("")) == text


def test_a_dialect_has_functions_and_a_way_to_write_of_its_own():
    dialect = Dialect({"twice": lambda v: 2 * v}, frozenset({"twice"}), lambda v: f"<{v}>")

    assert Template("{{ twice .v }} {{ .v }}", dialect=dialect).fill({"v": 2}) == "<4> <2>"
    with pytest.raises(TemplateError, match="function 'Now' is not supported"):
        Template("{{ Now }}", dialect=dialect)


WORK = (
    ("{{ range 10000000000 }}x{{ end }}", "line 1: range over 10000000000: want at most 10000"),
    ("{{ range 9000 }}{{ range 9000 }}x{{ end }}{{ end }}", "it takes more than 1000000 steps"),
    ("{{ indent 9999999999 .metadata.name }}", "line 1: indent: 10000000000 characters: want at most 1048576"),
    ('{{ replace "" (toString (until 9999)) (toString (until 9999)) }}', "characters: want at most 1048576"),
    ("{{ $x := list 1 }}{{ range 99 }}{{ $x = list $x $x }}{{ end }}{{ $x }}", "it takes more than 1000000 steps"),
    ('{{ "\\ud800" }}', "\\ud800 is no character"),
    ("{{ until -9999999999 }}", "want at most 10000"),
    ("null: 1", "what it gives cannot be JSON"),
)


@pytest.mark.parametrize(("text", "message"), WORK)
def test_a_template_without_end_or_measure_is_an_error_of_the_template(text, message):
    with pytest.raises(TemplateError) as raised:
        Template(text).fill_yaml({"metadata": {"name": "a"}}, Context(""))
    assert message in str(raised.value)


def test_brackets_and_blocks_nest_to_a_depth():
    for text in ("{{ " + "(" * 60 + "1" + ")" * 60 + " }}", "{{ if . }}" * 60 + "{{ end }}" * 60):
        with pytest.raises(TemplateError, match="more than 50 brackets and blocks in each other"):
            Template(text)


def test_whole_numbers_have_64_bits_as_in_go():
    text = "{{ mul 9223372036854775807 2 }} {{ add1 9223372036854775807 }} {{ int (float64 .big) }} {{ ceil (float64 .inf) }}"
    assert "-2 -9223372036854775808 0 +Inf" == Template(text).fill({"big": float("inf"), "inf": float("inf")})


def test_a_fault_in_a_function_of_the_context_is_an_error_of_the_template(monkeypatch):
    def broken(*_):
        raise RecursionError("too deep")

    monkeypatch.setattr("services.kwok.stages.templates._fields", broken)
    with pytest.raises(TemplateError, match="internal error: RecursionError: too deep"):
        Template("{{ .metadata.name }}").fill({})
