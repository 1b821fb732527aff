"""Certificates, ledgers, checkpoints and documents of networks are those of every fit."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from dpglm._codec import decode, encode
from dpglm.certificate import Certificate, verify
from dpglm.exceptions import LedgerError, PlanMismatchError
from dpglm.ledger import PrivacyLedger
from dpglm.privacy import ApproximateDP
from dpglm.privacy.noise import SeededNoise, SystemNoise
from dpglm.selection import NormGridSearch
from dpglm.solvers import D2P2, Method, Plan, run
from dpglm.torch import D2P2Optimizer, network_digest
from tests.fits import fit_classifier
from tests.forgeries import both, everywhere, forged, half, put
from tests.torch_networks.networks import (
    BUDGET,
    SHORT,
    cross_entropy,
    network,
    planned,
    rows_of,
    tensors,
)

SOLVERS = {
    "dp_sgd": D2P2.dp_sgd(sampling_rate=0.3, **SHORT),
    "d2p_sgd": D2P2.d2p_sgd(**SHORT),
    "dp2_sgd": D2P2.dp2_sgd(**SHORT),
    "d2p2_sgd": D2P2(noise_levels=2, sampling_rate=0.3, **SHORT),
    "priv_sgd": D2P2.priv_sgd(**SHORT),
    "clipping": D2P2.dp_sgd(normalize=False, **SHORT),
}


def optimizer(solver=SOLVERS["dp_sgd"], module=None, **settings):
    module = network() if module is None else module
    settings = {"block_size": 16} | settings
    return D2P2Optimizer(module, cross_entropy, *tensors(), BUDGET, solver, **settings)


@pytest.fixture(scope="module", params=SOLVERS)
def trained(request):
    module = network(torch.float32)
    X, y = tensors(dtype=torch.float32)
    solver = SOLVERS[request.param]
    made = D2P2Optimizer(module, cross_entropy, X, y, BUDGET, solver, block_size=16)
    return module, made.run()


def test_certificates_verify_and_survive_a_file(trained, tmp_path):
    module, certificate = trained
    certificate.to_json(tmp_path / "certificate.json")
    read = Certificate.from_json(tmp_path / "certificate.json")
    assert read == certificate
    found = verify(read)
    assert found.ok, found.findings
    assert not found.caveats
    assert read.model_digest == network_digest(module)
    assert 0.99 < read.epsilon <= 1.0
    assert "network" in read.statement()


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_certificates_verify_under_other_relations(adjacency):
    made = optimizer(SOLVERS["dp2_sgd"], adjacency=adjacency, n_rows=40)
    certificate = made.run()
    found = verify(certificate)
    assert found.ok, found.findings
    provenance = "by relation" if adjacency == "replace_one" else "declared"
    assert certificate.fact("n_rows").provenance == provenance


def test_plans_survive_json(trained):
    _, certificate = trained
    plan = certificate.rebuild()
    again = Plan.from_document(json.loads(json.dumps(plan.document)))
    assert again == plan
    assert decode(Method, encode(plan.method, Method)) == plan.method


def test_a_program_without_torch_can_check_certificates(tmp_path):
    """Of a network and of a search."""
    optimizer().run().to_json(tmp_path / "network.json")
    fit_classifier(solver=NormGridSearch(), epsilon=4.0).privacy_.to_json(tmp_path / "search.json")
    program = (
        "import sys\n"
        "from dpglm.certificate import Certificate, verify\n"
        "for name in ('network', 'search'):\n"
        "    print(verify(Certificate.from_json(f'{name}.json')).findings, 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("() False\n" * 2, "")


FORGERIES = [
    put("epsilon", 0.5),
    put("noise_scales.0", half),
    put("releases.0.contribution_bound", half),
    put("releases.0.rounding", 0.0),
    put("plan.method.noise_multiplier", half),
    put("plan.method.blocks", 2),
    put("plan.method.dimension", 100),
    put("plan.method.step_sizes", lambda steps: [*steps, 0.1]),
    put("plan.method.momentum", 1.5),
    put("plan.method.clipping.bound", half),
    everywhere("sparse", True),
    everywhere("n_features", 10),
    everywhere("dtype", "float32"),
    everywhere("sampling_rate", 0.1),
    everywhere("adjacency", "replace_one"),
    put("public_facts.1.value", 0.1),
    put("model_digest", "0"),
]


@pytest.fixture(scope="module")
def certificates():
    return optimizer().run(), optimizer(SOLVERS["dp2_sgd"]).run()


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forge: forge.__name__)
def test_forged_certificates_are_found(certificates, forgery):
    # An unprojected network has one block, without columns.
    found = certificates[forgery.__name__ == "plan.method.blocks"]
    assert verify(found).ok
    assert not verify(forged(found, forgery)).ok


def test_a_smaller_claim_with_a_smaller_event_is_found(certificates):
    less = both(everywhere("noise_multiplier", lambda noise: 2.0 * noise), put("epsilon", 0.4))
    assert not verify(forged(certificates[0], less)).ok


@pytest.mark.parametrize("name", SOLVERS)
def test_steps_are_those_of_a_run_to_the_bit(name):
    module, settings = network(), {"momentum": 0.5, "block_size": 16}
    own = optimizer(SOLVERS[name], module, noise=SeededNoise(4), **settings)
    start = own._gradients.start
    own.run()
    plan = planned(SOLVERS[name], momentum=0.5)
    assert plan == own.plan
    w = run(plan, rows_of(plan, *tensors()), SeededNoise(4)).w
    parameters = torch.cat([p.detach().ravel() for p in module.parameters()]).numpy()
    assert (parameters == start + w).all()


def new_ledger(folder):
    budget = ApproximateDP(1.2, 1e-5)
    return PrivacyLedger.create(folder / "ledger", data="rows", budget=budget)


def test_a_ledger_pays_for_everything_before_the_first_step(tmp_path):
    ledger = new_ledger(tmp_path)
    own = optimizer(SOLVERS["clipping"], ledger=ledger)
    assert not ledger.contents().entries
    own.step()
    (entry,) = ledger.contents().entries
    assert entry.event == own.plan.event
    certificate = own.run()
    assert certificate.ledger.entry == entry.id
    assert len(ledger.contents().entries) == 1
    module = network()
    other = optimizer(SOLVERS["clipping"], module, ledger=ledger)
    with pytest.raises(LedgerError):
        other.step()
    assert network_digest(module) == network_digest(network())


def test_a_ledger_refuses_noise_that_can_be_repeated(tmp_path):
    ledger = new_ledger(tmp_path)
    with pytest.raises(ValueError, match="seeded"):
        optimizer(ledger=ledger, noise=SeededNoise(0)).step()
    assert not ledger.contents().entries


def test_a_run_goes_on_from_a_checkpoint(tmp_path):
    plan = planned(D2P2(noise_levels=2, **SHORT), momentum=0.5)
    rows, path = rows_of(plan, *tensors()), tmp_path / "kept"

    class StoppedError(Exception):
        pass

    def stop(info):
        if info.step == 2:
            raise StoppedError

    with pytest.raises(StoppedError):
        run(plan, rows, SystemNoise(), stop, checkpoint=path)
    found = run(plan, rows, SystemNoise(), checkpoint=path)
    assert [info.step for info in found.history] == [1, 2, 3, 4]


def test_rows_of_another_kind_are_refused():
    from dpglm.data.prepare import prepare_rows

    plan = planned()
    rows = prepare_rows(torch.zeros(40, plan.data.n_features).numpy(), torch.zeros(40).numpy(),
                        plan.data)  # fmt: skip
    with pytest.raises(PlanMismatchError, match="network's rows"):
        run(plan, rows, SeededNoise(0))
