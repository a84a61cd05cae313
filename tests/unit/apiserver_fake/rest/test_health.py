from apiserver_fake.rest import health


def test_the_long_form_names_every_check_and_judges_all_but_those_left_out():
    checks = health.checks_of("readyz")

    assert "informer-sync" in checks
    assert "informer-sync" not in health.checks_of("livez")
    well = health.report("readyz", checks, set(), [])
    assert well.startswith("[+]ping ok\n[+]log ok\n[+]etcd ok\n")
    assert well.endswith("\n[+]shutdown ok\nreadyz check passed\n")


def test_before_the_store_is_recovered_what_depends_on_it_fails_and_may_be_left_out():
    checks = ("ping", "etcd")
    failed = health.failed(checks, is_ready=False)

    assert health.report("healthz", checks, failed, []) == (
        "[+]ping ok\n[-]etcd failed: reason withheld\nhealthz check failed\n"
    )
    assert health.report("healthz", checks, failed, ["etcd", "x"]) == (
        "[+]ping ok\n[+]etcd excluded: ok\n"
        'warn: some health checks cannot be excluded: no matches for "x"\nhealthz check passed\n'
    )
