"""Faults planted one at a time in a copy of the package: does a test fail?

    python tests/faults.py                  all of them; prints each that survives, and how many were found
    python tests/faults.py simulation lab   those of files whose name has one of the words

A row of FAULTS is a file of fedlib, the tests that are run (those that know the file best first; `golden:X` is the golden
case of method X in fp32, `golden:a+b` the case "a b"), and each text of the file that stands there once with what it becomes. A fault that no test notices is
printed; fewer than LEAST found is exit status 1. What was found is noted in faults.jsonl and not tried again while the file
and its tests are what they were: an interrupted run goes on, and after a change only what it concerns is tried.
For the night: one to two hours on two cores.
"""

import hashlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

# ruff: noqa: E501, a fault a line

ROOT = Path(__file__).parents[1]
LEAST = 0.97
NOTES = ROOT / "faults.jsonl"
SECONDS = 600  # processor time after which a fault that hangs its tests counts as found, or six times as long
LEFT = ("runs", "executed", "site", "faults.jsonl")  # what is not copied, besides names that begin with a dot

Change = tuple[str, str]
FAULTS: list[tuple[str, str, list[Change]]] = [
    ("simulation.py", "tests/test_simulation.py tests/algorithms/test_exchange.py tests/algorithms/test_contract.py::test_clients_elsewhere_give_the_same_bits tests/test_border.py tests/test_protocols.py tests/test_optimisers.py tests/test_newcomers.py tests/lab/test_budgets.py golden:Standalone+starts+apart", [
        ("max(1, int(participation * num_clients + 0.5))", "max(1, int(participation * num_clients))"),
        ("require(rounds >= 1,", "require(rounds >= 0,"),
        ("replace=False)", "replace=True)"),
        ("bool(enough and measured and enough(outcome))", "bool(enough and measured)"),
        ("not federation.newcomer_visits and round == rounds - 1", "round == rounds - 1"),
        ("stalled = 0 < patience < len(measured)", "stalled = 0 < patience <= len(measured)"),
        ("(losses and not np.isfinite(loss))", "(losses and np.isinf(loss))"),
        ("loss = torch.where(finite, ", "loss = torch.where(finite | True, "),
        ("torch.cat([client.validation, client.test]))\n    return", "torch.cat([client.test, client.validation]))\n    return"),
        ("row[name] = _mean(measured)", "row[name] = _mean(values)"),
        ("row[f\"{name}_all\"] = _mean(values)", "row[f\"{name}_all\"] = _mean(measured)"),
        ("values[0] if len(set(values)) == 1 else float(np.mean(values))", "float(np.mean(values))"),
        ("not client.visited and federation.inherit(client, request.round)", "federation.inherit(client, request.round)"),
        ("client.id if apart else client.info.architecture", "client.info.architecture"),
    ]),
    ("federation.py", "tests/test_simulation.py tests/test_border.py tests/test_protocols.py tests/test_public.py golden:Standalone+inherit+first_round tests/test_refusals.py", [
        ("self.round, self.client.id)", "self.round, None)"),
        ("if name not in uncounted)", ")"),
        ("        return self._pool\n", "        return self.whole\n"),
        ("return copy.deepcopy(self.states[architecture])", "return self.states[architecture]"),
        ("if index in owner:", "if index in owner and owner[index] == name:"),
        ("id % len(self.architectures)", "0"),
        ("if donor is None or not inherits:", "if donor is None:"),
        ("settings.lr if lr is None else lr", "settings.lr"),
        ("self.generator(support) if support else None", "self.generator(purpose) if support else None"),
        ("if self._fetch is not None:\n            self.restore(self._fetch())", "if self._fetch is None:\n            self.restore(self._fetch())"),
        ("(self.protocol.inherit == \"first_round\" and round == 0)", "self.protocol.inherit == \"first_round\""),
    ]),
    ("training.py", "tests/test_training.py tests/data/test_kinds.py tests/lab/test_threads.py tests/test_border.py tests/test_simulation.py tests/test_optimisers.py", [
        ("if self.stored.dtype == torch.int64:\n            return", "if False:\n            return"),
        ("torch.autocast(kind, enabled=False)", "torch.autocast(kind)"),
        ("(product, \"fp32_precision\", \"ieee\")", "(product, \"fp32_precision\", \"tf32\")"),
        ("        torch.set_float32_matmul_precision(\"highest\")\n", ""),
        ("torch.set_num_threads(THREADS)", "torch.set_num_threads(torch.get_num_threads())"),
        ("        torch.set_default_dtype(torch.float32)\n", ""),
        ("rows = rows.to(torch.bfloat16)", "rows = rows"),
        ("labels, places = torch.full_like(self.labels, -1)", "labels, places = self.labels.clone()"),
        ("return [count] * int(settings.epochs)", "return [count]"),
        ("sizes[-1] == 1 < size", "sizes[-1] == 0 < size"),
        ("momentum=settings.momentum, weight_decay=settings.weight_decay", "momentum=0.0, weight_decay=settings.weight_decay"),
        ("optimiser.zero_grad()\n    images =", "images ="),
        ("F.log_softmax(logits, 1), teacher.detach().softmax(1), reduction=\"batchmean\")", "F.log_softmax(logits, 1), teacher.softmax(1), reduction=\"batchmean\")"),
        ("total / max(1, sum(images_of_epochs(settings, len(indices))))", "total / max(1, len(indices))"),
        ("with fork_torch(dropout), training_mode", "with training_mode"),
        ("return stacked.mean(0) if stacked.is_floating_point() else stacked.amax(0)", "return stacked.mean(0) if stacked.is_floating_point() else stacked.amin(0)"),
        ("pair.isfinite().all()", "pair.isnan().logical_not().all()"),
        ("torch.where(flip < 0.5, width", "torch.where(flip < 1.5, width"),
        ("max(1, round(part * count))", "round(part * count)"),
        ("function(pool.batch(batch)).float()", "function(pool.batch(batch))"),
    ]),
    ("partition.py", "tests/test_partition.py tests/test_natural_partitions.py tests/test_border.py tests/lab/test_own_parts.py tests/test_protocols.py tests/test_refusals.py", [
        ("stream.permutation(np.flatnonzero(labels == label))", "np.flatnonzero(labels == label)"),
        ("stream.uniform(0.4, 0.6, count)", "stream.uniform(0.5, 0.5, count)"),
        ("slots[stream.choice(num_classes, wanted % num_classes, replace=False)] += 1", "slots += 1"),
        ("np.cumsum(stream.dirichlet(np.full(num_clients, alpha)))", "np.cumsum(stream.dirichlet(np.full(num_clients, 1.0)))"),
        ("clients = range(group, num_clients, count)", "clients = range(group, group + 1)"),
        ("labels[:num_train], fraction, generator(seed, \"public\"))", "labels, fraction, generator(seed, \"public\"))"),
        ("        private = private[private < num_train]\n", "        pass\n"),
        ("| (ids >= len(labels))]", "| (ids > len(labels))]"),
        ("labels.copy(), num_clients", "labels, num_clients"),
        ("(np.arange(len(mine)) + 0.5) / len(mine)", "np.arange(len(mine)) + 0.5"),
        ("np.floor(np.cumsum(sizes) + 1e-9)", "np.floor(np.cumsum(sizes) + 1)"),
        ("if all(size >= least for", "if any(size >= least for"),
        ("np.floor(np.cumsum(sizes) + 1e-9)).astype(int)", "np.floor(np.cumsum(sizes))).astype(int)"),
        ("if all(size >= least for size, least in zip(sizes, min_sizes, strict=True)):", "if sizes[0] >= min_sizes[0]:"),
    ]),
    ("border.py", "tests/test_border.py tests/lab/test_border_of_runs.py", [
        ("return value.detach().clone() if clone else value", "return value.detach() if clone else value"),
        ("value.layout == torch.strided and not value.is_meta", "True"),
        ("if type(value) in (type(None), bool, int, float, str):", "if isinstance(value, type(None) | bool | int | float | str):"),
        ("generator(seed, \"own\", round, client)", "generator(seed, \"own\", round)"),
        ("torch.set_default_dtype(torch.float32)\n", "pass\n"),
        ("values.shape == (count, num_classes)", "values.shape[0] == count"),
        ("client.state[name] = copied(client.state[name],", "copied(client.state[name],"),
        ("found[name][:2] == built[name][:2]", "found[name][:1] == built[name][:1]"),
    ]),
    ("check.py", "tests/test_border.py", [
        ("if not (own := own_parts(algorithm, federation)):", "own = own_parts(algorithm, federation)\n    if True:"),
        ("_compare(f\"{algorithm.name}: called twice, begun alike,\", whole[0], again[0])", "pass"),
        (".clone()\n\n\ndef _played", "\n\n\ndef _played"),
        ("if border.digest([client.snapshot()]) != kept:", "if False:"),
    ]),
    ("randomness.py", "tests/test_border.py tests/lab/test_border_of_runs.py tests/test_training.py tests/test_simulation.py", [
        ("PURPOSES.index(purpose), round + 1,", "PURPOSES.index(purpose), 0,"),
        ("torch.manual_seed(seed)", "torch.manual_seed(0)"),
        ("if not exclusive._is_owned():", "if exclusive._is_owned():"),
        ("np.random.set_state(numpy)", "pass"),
        ("random.setstate(python)", "pass"),
        ("        np.random.set_state(numpy)  # noqa: NPY002\n        random.setstate(python)", "        np.random.set_state(numpy)  # noqa: NPY002"),
    ]),
    ("models.py", "tests/test_models.py tests/algorithms/test_contract.py::test_refused tests/algorithms/test_contract.py::test_kind_and_shape tests/test_border.py tests/lab/test_own_parts.py", [
        ("\"CNN-4\": (32, 800)", "\"CNN-4\": (32, 1000)"),
        ("if sample.kind != kind:", "if False:"),
        ("if shared or not same:", "if shared:"),
        ("trained.get(name, False)", "False"),
        ("require(min(sample.shape[1:]) >= least", "require(max(sample.shape[1:]) >= least"),
        ("require(min(sample.shape[1:]) >= least, field, architecture, small)", "require(sample.shape[1] >= least, field, architecture, small)"),
    ]),
    ("isolated.py", "tests/test_isolated.py tests/algorithms/test_contract.py::test_in_the_first_round_a_method_and_its_isolated_self_are_equal tests/test_border.py", [
        ("replace(build, client=None)", "build"),
        ("infos=[client.info])", "infos=[client.info, client.info])"),
        ("[Upload(client.info, travelling)], known) or {}", "[], known) or {}"),
        ("return Message(diagnostics=upload.diagnostics | numbers)", "return Message(diagnostics=upload.diagnostics)"),
        ("replace(first, round=0)", "first"),
        ("self.method.init_server(replace(first, round=0))", "self.method.init_server(first)"),
    ]),
    ("optimisers.py", "tests/test_optimisers.py tests/test_refusals.py", [
        ("in sorted(given))", "in given)"),
        ("if key in OURS:", "if False:"),
        ("bit_length()))[round]", "bit_length()))[0]"),
        ("made.step()\n        except", "pass\n        except"),
        ("if key in takes and not {\"epochs\", key} & set(given)}", "if key in takes and key not in given}"),
    ]),
    ("devices.py", "tests/test_gpu.py", [
        ("device.index < torch.cuda.device_count()", "True"),
        ("return given.partition(\",\")[0].partition(\":\")[0]", "return given.partition(\",\")[0]"),
        ("len(set(names)) == len(names)", "True"),
        ("    require(len(set(names)) == len(names), \"device\", given, \"different devices\")\n", ""),
    ]),
    ("zoo.py", "tests/test_zoo.py", [
        ("network.heads = nn.Linear(width, FEATURES)", "network.heads.head = nn.Linear(width, FEATURES); nn.init.zeros_(network.heads.head.weight)"),
        ("elif not part.startswith(own):", "elif False:"),
        ("src_key_padding_mask=padding", "src_key_padding_mask=None"),
        ("padding = (ids == 0) & (ids > 0).any(1, keepdim=True)  # a text of nothing but padding is read as it is", "padding = ids == 0"),
    ]),
    ("errors.py", "tests/lab/test_damage.py tests/test_border.py tests/test_refusals.py", [
        ("except (ValueError, OverflowError):\n        number", "except ValueError:\n        number"),
        ("if kind is int:\n        require(number.is_integer()", "if kind is int:\n        require(True"),
        ("not isinstance(value, bool), field, value, allowed)\n    if kind is int:", "True, field, value, allowed)\n    if kind is int:"),
    ]),
    ("metrics.py", "tests/test_metrics.py tests/test_simulation.py tests/test_refusals.py", [
        ("logits.argmax(1) == labels", "logits.argmin(1) == labels"),
        ("[: -(-len(accuracies) // 10)].mean()", "[: len(accuracies) // 10 + 1].mean()"),
        ("METRICS.get(metric.name) not in BUILT_IN and metric.name not in columns", "metric.name not in columns"),
        ("metric.of_client(logits.clone(), labels.clone())", "metric.of_client(logits, labels)"),
        ("areas.append(((above > 0).double() + (above == 0).double() / 2).mean())", "areas.append((above >= 0).double().mean())"),
    ]),
    ("show/stats.py", "tests/show/test_intervals.py tests/show/test_stats.py", [
        ("sample.std(ddof=1)", "sample.std()"),
        ("/ np.sqrt(len(sample))", "/ len(sample)"),
        ("stdtrit(len(sample) - 1, 0.975)", "stdtrit(len(sample), 0.975)"),
        ("stdtrit(len(sample) - 1, 0.975)", "stdtrit(len(sample) - 1, 0.95)"),
        ("critical(correlation, df)))", "critical(correlation[:1, :1], df)))"),
        (" and len({one.mean > 0 for one in found}) == 1:", ":"),
    ]),
    ("show/intervals.py", "tests/show/test_intervals.py tests/test_compare.py", [
        ("by = rounds[\"validation_accuracy\"][there] if rule == \"validation\" else values", "by = values"),
        (".tail(10).mean()", ".tail(9).mean()"),
        ("np.nanargmax(", "np.nanargmin("),
        ("run.status != \"diverged\" and trained ==", "trained =="),
        ("value(own) if 0 < len(own) == visited else np.nan", "value(own) if len(own) else np.nan"),
    ]),
    ("lab/records.py", "tests/lab/test_store.py tests/test_metrics.py tests/papers/test_recorded.py tests/lab/test_change.py tests/lab/test_damage.py tests/lab/test_bits.py tests/test_refusals.py", [
        ("if hashlib.sha256(content[name]).hexdigest() != digests[name]:", "if False:"),
        ("if digest != record.files[file.name]:", "if False:"),
        ("if record.hashed != resolved.hashed:", "if False:"),
        ("enough = stale or (measured and (", "enough = stale or (("),
        ("if whole(path):\n                raise", "if False:\n                raise"),
        ("    clientfiles.remove(path / \"checkpoint.pt\")\n    (path / SESSIONS)", "    (path / SESSIONS)"),
        ("not in (\"unfinished\", \"damaged\")", "not in (\"unfinished\", \"damaged\", \"unreadable\")"),
        ("return state(path)[0] not in (\"unfinished\", \"damaged\")", "return state(path)[0] in (\"finished\", \"diverged\", \"stale\")"),
    ]),
    ("lab/files.py", "tests/lab/test_checkpoint.py tests/lab/test_store.py tests/lab/test_client_files.py tests/lab/test_damage.py tests/lab/test_bits.py tests/test_refusals.py tests/papers/test_recorded.py", [
        ("content[\"rounds.csv\"] + content[\"clients.csv\"]", "content[\"rounds.csv\"]"),
        ("temporary.unlink()", "pass"),
        ("hashlib.sha256(sealed).hexdigest().encode() != digest", "False"),
        ("while (aside := path.with_name(f\"{path.name}.{reason}-{number}\")).exists():\n        number += 1", "aside = path.with_name(f\"{path.name}.{reason}-{number}\")"),
        ("os.fsync(file.fileno())\n        if len", "pass\n        if len"),
        ("list(files)[-1].unlink(missing_ok=True)", "pass"),
        ("        if len(files) > 1:\n            list(files)[-1].unlink(missing_ok=True)\n", ""),
    ]),
    ("lab/checkpoint.py", "tests/lab/test_checkpoint.py tests/lab/test_client_files.py tests/lab/test_bits.py tests/lab/test_store.py tests/test_refusals.py", [
        ("if not foreign:", "if True:"),
        ("if row[\"round\"] >= 0}", "}"),
        ("if checkpoint is not None and clients is not None and (due or stopping):", "if checkpoint is not None and clients is not None and due:"),
        ("    clients.forget()\n", "    pass\n"),
        ("federation.last_trained = trained", "pass"),
        ("            federation.last_trained = trained\n", ""),
    ]),
    ("lab/clientfiles.py", "tests/lab/test_client_files.py tests/lab/test_bits.py tests/lab/test_store.py", [
        ("if hashlib.file_digest(file, \"sha256\").hexdigest() != digest:", "if False:"),
        ("if oldest in self.changed:\n                self._write(oldest)", "if False:\n                self._write(oldest)"),
        ("self.changed.add(client.id)\n        self._hold", "self._hold"),
        ("(self.folder / name).unlink(missing_ok=True)", "pass"),
        ("int(said[\"number\"]) + 1", "int(said[\"number\"])"),
        ("dict(said[\"files\"]), int(said[\"number\"]) + 1", "dict(said[\"files\"]), int(said[\"number\"])"),
    ]),
    ("lab/estimates.py", "tests/lab/test_progress.py", [
        ("one.seconds * work / its", "one.seconds"),
        ("{\"algorithm\": 3}", "{\"algorithm\": 0}"),
        ("torch.random.fork_rng(devices=[])", "contextlib.nullcontext()"),
        ("key=lambda path: path.stat().st_mtime)[-NEWEST:]", "key=lambda path: path.stat().st_mtime)[:NEWEST]"),
    ]),
    ("lab/progress.py", "tests/lab/test_progress.py", [
        ("self._bar.refresh(nolock=True)", "self._bar.refresh()"),
        ("max(self.done, min(done, self.total))", "min(done, self.total)"),
    ]),
    ("lab/launch.py", "tests/papers/test_recorded.py::test_own_parts_that_make_something_else_from_the_same_source_are_another_run tests/lab/test_border_of_runs.py tests/lab/test_own_parts.py tests/lab/test_bits.py tests/lab/test_store.py tests/test_refusals.py tests/lab/test_shared_store.py", [
        ("            stdout=2,\n", ""),
        ("if status and not stop:", "if False:"),
        ("                    resolved.check_own_parts()\n                return _compute", "                return _compute"),
        ("                    resolved.check_own_parts()\n                    if row", "                    if row"),
        ("if single or not item.portable]", "if single]"),
        ("waiting.append(item)  # the others first", "waiting.insert(0, item)"),
    ]),
    ("lab/spec.py", "tests/lab/test_checkpoint.py tests/lab/test_keys.py tests/lab/test_change.py tests/lab/test_damage.py tests/lab/test_own_parts.py tests/test_metrics.py tests/test_refusals.py", [
        ("if values[\"partition\"] not in (\"dirichlet\", \"quantity-skew\"):\n        del hashed[\"alpha\"]", "if False:\n        del hashed[\"alpha\"]"),
        ("if digests:\n        hashed[\"own\"] = digests", "if False:\n        hashed[\"own\"] = digests"),
        ("values[\"participation\"] = min(1.0, SELECTED / max(1, values[\"num_clients\"]))", "values[\"participation\"] = SELECTED / max(1, values[\"num_clients\"])"),
        ("changed = (f\"{part} {number}\" for part, number in self.numerics.items() if number != 1)", "changed = ()"),
        ("if values[\"partition\"] not in (\"dirichlet\", \"quantity-skew\"):", "if values[\"partition\"] != \"dirichlet\":"),
        ("keep = max(self.spec.keep, other.keep, key=KEEP.index)", "keep = max(self.spec.keep, other.keep)"),
    ]),
    ("../packages/flower/fedlib_flower/wire.py", "packages/flower/tests/test_wire.py packages/flower/tests/test_over_bytes.py packages/flower/tests/test_flower.py", [
        ("if len(content) > LIMIT:", "if False:"),
        ("if used != set(tensors):", "if False:"),
        ("require(reply.upload.num_samples in counts,", "require(True,"),
        ("if set(sized) != set(upload.tensors):", "if False:"),
        ("1 <= length <= wanted.most", "1 <= length"),
        ("if not diverged and tensor.is_floating_point()", "if tensor.is_floating_point()"),
        ("lengths.setdefault(wanted.name, length) == length", "True"),
        ("name: tensor.shape for name, tensor in stored.items()} != {name: known[name].shape for", "name: 0 for name, tensor in stored.items()} != {name: 0 for"),
        (" and lengths.setdefault(wanted.name, length) == length", ""),
    ]),
    ("fields.py", "tests/lab/test_keys.py tests/lab/test_change.py tests/test_refusals.py", [
        ("\"ge\": operator.ge", "\"ge\": operator.gt"),
        ("require(not is_text,", "require(True,"),
        ("and values[item.name] != neutral:", ":"),
    ]),
    ("numerics.py", "tests/lab/test_checkpoint.py tests/lab/test_change.py tests/lab/test_keys.py tests/test_golden.py", [
        ("if version(part) != number]", "if False]"),
        ("dict.fromkeys(parts(hashed), 1) | dict(stored or {})", "versions(hashed) | dict(stored or {})"),
        ("dict.fromkeys(parts(hashed), 1) | dict(stored or {})", "dict(stored or dict.fromkeys(parts(hashed), 1))"),
    ]),
    ("../tests/benchmarks/captured.py", "tests/test_captured.py", [
        ("            into[name].copy_(tensor)\n", "            pass\n"),
        ("                own.copy_(given)\n", "                pass\n"),
        ("    own.end(modules)\n", ""),
        ("tuple((name, *tensor.shape) for name, tensor in batch.items())", "tuple(batch)"),
        ("            for tensor in self._moments():\n                tensor.zero_()\n\n    def end", "\n    def end"),
        ("                given.copy_(own)\n", "                pass\n"),
    ]),
    ("lab/own.py", "tests/lab/test_keys.py tests/lab/test_own_parts.py", [
        ("self.value((function.__defaults__, function.__kwdefaults__))", "pass"),
        ("sorted(digest(item) for item in value)", "[digest(item) for item in value]"),
    ]),
    ("lab/costs.py", "tests/lab/test_flops.py tests/algorithms/test_contract.py::test_words_in_a_steady_state_round tests/algorithms/test_contract.py::test_a_method_is_priced_at_what_it_runs tests/lab/test_budgets.py tests/lab/test_costs.py", [
        ("public * (self.public + self.upload_public)", "public * self.public"),
        ("return any(used >= most for used, most in found.values())", "return any(used > most for used, most in found.values())"),
    ]),
    ("algorithms/fedl2g.py", "tests/algorithms/test_fedl2g.py", [
        ("context.rounds + 0.5)", "context.rounds)"),
    ]),
    ("algorithms/fedkemf.py", "tests/algorithms/test_fedkemf.py", [
        ("self.server_epochs or context.settings.epochs", "self.server_epochs or 1"),
    ]),
    ("algorithms/pfedme.py", "tests/algorithms/test_averages.py golden:pFedMe", [
        ("            global_part.copy_(personal)\n", "            pass\n"),
        ("optimiser = fresh_optimiser(networks, settings)", "optimiser = fresh_optimiser(networks, context.settings)"),
    ]),
    ("algorithms/ditto.py", "tests/algorithms/test_averages.py golden:Ditto", [
        ("reference=downloaded, weight=self.lam", "reference=trained, weight=self.lam"),
    ]),
    ("algorithms/fedkd.py", "tests/algorithms/test_fedkd.py golden:FedKD", [
        ("server[\"holders\"] = [info.id for info, _ in uploads]", "server[\"holders\"] += [info.id for info, _ in uploads]"),
    ]),
    ("algorithms/fedproto.py", "tests/algorithms/test_fedproto.py golden:FedProto", [
        ("weight * distance.mean()", "weight * distance.sum() / known[labels].sum().clamp(min=1)"),
    ]),
    ("algorithms/fedgh.py", "tests/algorithms/test_fedgh.py golden:FedGH", [
        ("torch.optim.SGD([weight, bias], self.server_lr)", "torch.optim.SGD([weight, bias], self.server_lr or context.settings.lr)"),
    ]),
    ("algorithms/fd.py", "tests/algorithms/test_fd.py golden:FD", [
        ("F.mse_loss(shown(logits, outputs), targets[labels]", "F.mse_loss(logits, targets[labels]"),
    ]),
    ("algorithms/fedtgp.py", "tests/algorithms/test_fedtgp.py golden:FedTGP", [
        ("    both = (counts > 0)[:, None] & (counts > 0)\n    return (distances(centres, centres) * both).amax().clamp(max=tau)", "    return distances(centres, centres).amax().clamp(max=tau)"),
    ]),
    ("algorithms/fedssa.py", "tests/algorithms/test_fedssa.py golden:FedSSA", [
        ("else 1 - mu\n", "else 1 - self.mu0\n"),
    ]),
    ("algorithms/fedmd.py", "tests/algorithms/test_fedmd.py golden:FedMD", [
        ("context.train(purpose=\"pretrain\", epochs=self.pretrain_epochs)", "context.train(purpose=\"pretrain\")"),
    ]),
    ("algorithms/pfedhr/reassembly.py", "tests/algorithms/pfedhr/test_reassembly.py tests/algorithms/test_pfedhr.py golden:pFedHR", [
        ("start, end = i * size // wanted, -(-(i + 1) * size // wanted)", "start, end = i * size // wanted, max(i * size // wanted + 1, (i + 1) * size // wanted)"),
    ]),
    ("algorithms/fedmrl.py", "tests/algorithms/test_fedmrl.py golden:FedMRL", [
        ("return m_small * F.cross_entropy(small, labels) + m_large * F.cross_entropy(large, labels)", "return m_large * F.cross_entropy(small, labels) + m_small * F.cross_entropy(large, labels)"),
    ]),
    ("algorithms/fedgen.py", "tests/algorithms/test_fedgen.py golden:FedGen", [
        ("optimiser=\"adam\", lr=self.generator_lr, weight_decay=0.0)", "optimiser=\"adam\", lr=self.generator_lr)"),
    ]),
    ("data/readers/har.py", "tests/data/test_har.py", [
        ("largest = float(np.abs(features).max())", "largest = float(features.max())"),
    ]),
    ("data/readers/ag_news.py", "tests/data/test_ag_news.py", [
        ("commonest = sorted(counts, key=lambda word: (-counts[word], word))[: VOCABULARY - 2]", "commonest = [word for word, _ in counts.most_common(VOCABULARY - 2)]"),
    ]),
    ("data/readers/pamap2.py", "tests/data/test_pamap2.py", [
        ("stretch.reshape(count, READINGS // AVERAGED, AVERAGED, len(SIGNALS)).mean(2)", "stretch.reshape(count, READINGS // AVERAGED, AVERAGED, len(SIGNALS))[:, :, 0]"),
    ]),
    ("data/readers/femnist.py", "tests/data/test_femnist.py", [
        ("* 255).round().astype(np.uint8)", "* 255).astype(np.uint8)"),
    ]),
    ("papers/differences.py", "tests/papers/test_differences.py", [
        ("frame.drop_duplicates([\"setting\", \"method\", \"seed\"])", "frame.drop_duplicates([\"setting\", \"method\", \"seed\"], keep=\"last\")"),
    ]),
    ("papers/exhibits.py", "tests/papers/test_exhibits.py", [
        ("yours = {name: value for name, value in changes.items() if name != \"precision\" or not about_it}", "yours = dict(changes)"),
    ]),
    ("papers/planned.py", "tests/papers/test_planned.py", [
        ("known = {*of_record.by_key(), *(done.parent.name for done in waiting)}", "known = {*of_record.by_key()}"),
    ]),
    ("papers/reproduce.py", "tests/papers/test_exhibits.py tests/papers/test_notebooks.py tests/papers/test_smoke.py", [
        ("return path.with_stem(f\"{path.stem}--{asked.variation}\") if asked.variation else path", "return path"),
    ]),
    ("cli/store.py", "tests/lab/test_store.py tests/lab/test_change.py", [
        ("max(file.lstat().st_mtime for file in path.iterdir())", "(path / \"spec.json\").lstat().st_mtime"),
    ]),
    ("cli/run.py", "tests/test_terminal.py tests/lab/test_progress.py tests/papers/test_readme.py", [
        ("costs.kilobytes(words / record.rounds[\"selected\"].sum())", "costs.kilobytes(words / spec.num_clients / len(trained))"),
    ]),
    ("../packages/flower/fedlib_flower/server.py", "packages/flower/tests/test_flower.py packages/flower/tests/test_hostile.py", [
        ("if len(said) >= 2 and len(said) == sum(", "if said and len(said) == sum("),
    ]),
    ("training.py", "golden:Standalone", [
        ("return F.cross_entropy(model(images), labels)\n", "return -F.cross_entropy(model(images), labels)\n"),
        ("flip < 0.5, width - 1", "flip > 0.5, width - 1"),
        ("total += value * len(labels)", "total += value * settings.batch_size"),
    ]),
    ("federation.py", "golden:Standalone", [
        ("stream, second = self.generator(purpose)", "stream, second = self.generator(\"pretrain\")"),
    ]),
    ("algorithms/fedavg.py", "golden:FedAvg", [
        ("weights = [message.num_samples for", "weights = [1 + message.num_samples % 2 for"),
        ("client.model.load_state_dict(message.tensors)", "pass"),
    ]),
    ("training.py", "golden:FedAvg", [
        ("weight / total)", "weight / (total + 5))"),
        ("stream.spawn(1)[0]", "stream.spawn(2)[1]"),
    ]),
    ("algorithms/fedprox.py", "golden:FedProx", [
        ("copy.deepcopy(client.model)", "context.build(client.info.architecture)"),
    ]),
    ("algorithms/per_fedavg.py", "golden:Per-FedAvg", [
        ("parameter - alpha * gradient", "parameter + alpha * gradient"),
        ("support=\"method\"", "support=\"server\""),
    ]),
    ("algorithms/pfedme.py", "golden:pFedMe", [
        ("personal.detach(), self.eta * self.lam", "personal.detach(), -self.eta * self.lam"),
        ("generator(\"dropout\")", "generator(\"method\")"),
    ]),
    ("algorithms/pfedbayes.py", "golden:pFedBayes", [
        ("- ratio.log()", "+ ratio.log()"),
        ("generator(\"method\")", "generator(\"dropout\")"),
    ]),
    ("algorithms/fml.py", "golden:FML", [
        ("+ (1 - alpha) * kl", "- (1 - alpha) * kl"),
        ("generator(\"server\")", "generator(\"init\")"),
    ]),
    ("algorithms/fedkd.py", "golden:FedKD", [
        ("(mutual + hints)", "(mutual - hints)"),
        ("mapped.detach()", "mapped"),
    ]),
    ("algorithms/lg_fedavg.py", "golden:LG-FedAvg", [
        ("weights = [message.num_samples for", "weights = [1 + message.num_samples % 2 for"),
        ("client.model.header.load_state_dict(message.tensors)", "pass"),
    ]),
    ("algorithms/fedclassavg.py", "golden:FedClassAvg", [
        ("return rho / 2", "return -rho / 2"),
        ("return rho / 2", "return rho"),
    ]),
    ("algorithms/fd.py", "golden:FD", [
        ("apart = -(targets", "apart = (targets"),
        ("] -= sent[\"outputs\"]", "] += sent[\"outputs\"]"),
    ]),
    ("algorithms/fedproto.py", "golden:FedProto", [
        ("+ weight * distance.mean()", "- weight * distance.mean()"),
        ("F.mse_loss(features,", "F.mse_loss(features.detach(),"),
    ]),
    ("algorithms/fedmd.py", "golden:FedMD", [
        ("return F.l1_loss(", "return -F.l1_loss("),
        ("context.generator(\"public\")", "context.generator(\"method\")"),
    ]),
    ("algorithms/fccl.py", "golden:FCCL", [
        ("output, labels) + from_pretrained", "output, labels) - from_pretrained"),
        ("(correlation + 1).square().sum() - ", "(correlation - 1).square().sum() - "),
    ]),
    ("algorithms/fedkemf.py", "golden:FedKEMF", [
        ("+ weight * gap", "- weight * gap"),
        ("/ len(uploads)", "/ (1 + len(uploads))"),
    ]),
    ("algorithms/fedgh.py", "golden:FedGH", [
        ("label).backward()", "label).neg().backward()"),
        ("fork_torch(context.generator(\"server\"))", "fork_torch(context.generator(\"init\"))"),
    ]),
    ("algorithms/fedssa.py", "golden:FedSSA", [
        ("+ mu * header.weight[rows]", "- mu * header.weight[rows]"),
        ("= weights.mean(0), ", "= weights.sum(0), "),
    ]),
    ("algorithms/pfedes.py", "golden:pFedES", [
        ("+ (1 - mu) * F", "+ (1 + mu) * F"),
        ("\"method\", epochs", "\"batches\", epochs"),
    ]),
    ("algorithms/pfedhr/__init__.py", "golden:pFedHR", [
        ("+ weight * distance", "- weight * distance"),
        ("generator(\"server\"), context.public", "generator(\"public\"), context.public"),
    ]),
    ("algorithms/fedtgp.py", "golden:FedTGP", [
        ("+ weight * (phi * known[labels]).mean()", "- weight * (phi * known[labels]).mean()"),
        ("apart = features - prototypes", "apart = features.detach() - prototypes"),
    ]),
    ("algorithms/fedmrl.py", "golden:FedMRL", [
        ("return m_small * F", "return -m_small * F"),
        ("[small(images), model.extractor(images)]", "[model.extractor(images), small(images)]"),
    ]),
    ("algorithms/fedper.py", "golden:FedPer", [
        ("weights = [message.num_samples for", "weights = [1 + message.num_samples % 2 for"),
        ("client.model.extractor.load_state_dict(message.tensors)", "pass"),
    ]),
    ("algorithms/fedrep.py", "golden:FedRep", [
        ("\"method\", self.head_epochs", "\"batches\", self.head_epochs"),
        ("self.head_epochs, extractor", "1, extractor"),
    ]),
    ("algorithms/ditto.py", "golden:Ditto", [
        ("purpose=\"method\"", "purpose=\"batches\""),
        ("weight=self.lam)", "weight=-self.lam)"),
    ]),
    ("algorithms/fedbabu.py", "golden:FedBABU", [
        ("tensor.clone() for", "0.9 * tensor.clone() for"),
        ("\"method\", self.tune_epochs", "\"batches\", self.tune_epochs"),
    ]),
    ("algorithms/fedgen.py", "golden:FedGen", [
        ("+ weight * F.cross_entropy(", "- weight * F.cross_entropy("),
        ("context.generator(\"method\")", "context.generator(\"server\")"),
    ]),
    ("algorithms/fedl2g.py", "golden:FedL2G", [
        ("+ F.mse_loss(g,", "- F.mse_loss(g,"),
        ("parameter - eta * slope", "parameter + eta * slope"),
    ]),
]  # fmt: skip


def tests_of(row: str) -> list[str]:
    """What pytest is told."""
    made = []
    for word in row.split():
        if word.startswith("golden:"):
            case = word.removeprefix("golden:").replace("+", " ")
            case = case if " " in case else f"{case} fp32"
            word = f"tests/test_golden.py::test_numbers_stay_as_they_are_or_have_a_new_version[{case}]"
        made.append(word)
    return made


def check() -> list[str]:
    """What is wrong with the rows: a text that does not stand once in its file, a test that is not there."""
    wrong = []
    for file, tests, changes in FAULTS:
        source = (ROOT / "fedlib" / file).read_text()
        wrong += [
            f"{file}: {source.count(old)} times, not once: {old!r}"
            for old, new in changes
            if source.count(old) != 1 or old == new
        ]
        for test in tests_of(tests):
            path, _, name = test.partition("::")
            there = (ROOT / path).exists() and f"def {name.partition('[')[0]}" in (ROOT / path).read_text()
            wrong += [] if there else [f"{file}: no {test}"]
    return wrong


def state(file: str, tests: str) -> str:
    """SHA-256 of the file and of its tests (16 digits)."""
    digest = hashlib.sha256((ROOT / "fedlib" / file).read_bytes())
    for test in tests_of(tests):
        digest.update((ROOT / test.partition("::")[0]).read_bytes())
    return digest.hexdigest()[:16]


def noted() -> set[tuple[str, str, str, Change | None]]:
    """(file, tests, state, change) of what did as it should in earlier runs: a fault found, the file as it is passed."""
    lines = NOTES.read_text().splitlines() if NOTES.exists() else []
    rows = [json.loads(line) for line in lines]
    return {(row["file"], row["tests"], row["state"], row["change"] and tuple(row["change"])) for row in rows}


def passes(copy: Path, file: str, tests: str, change: Change | None) -> bool:
    """Whether the tests pass in `copy` with the change (None: without). They run in a fork of this process, which has
    imported what takes long, and nothing of fedlib.
    """
    path = copy / "fedlib" / file
    whole = path.read_text()
    path.write_text(whole.replace(*change) if change else whole)
    child = os.fork()
    if not child:
        try:
            os._exit(_tested(copy, tests_of(tests)))
        finally:  # whatever is raised: nothing of the parent's is cleared away here
            os._exit(70)
    began = time.monotonic()
    try:
        while time.monotonic() - began < 6 * SECONDS:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status) == 0
            time.sleep(0.05)
        return False
    finally:
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(child, signal.SIGKILL)
        path.write_text(whole)


def _tested(copy: Path, tests: list[str]) -> int:
    """pytest's exit status for the tests of `copy`, without a word."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    os.chdir(copy)
    sys.path[:] = [str(copy), *(path for path in sys.path if Path(path).resolve() not in (ROOT, ROOT / "tests"))]
    os.environ["PYTHONPATH"] = str(copy)
    quiet = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(quiet, number)
    options = ["-xq", "-pno:cacheprovider", "--no-header", "-m", "thorough or not (slow or nightly)"]
    return int(pytest.main([*options, *tests]))


def started(folder: Path, work: list[tuple[str, str, Change | None]], number: int) -> int:
    """A process that tries `work` on a copy of its own; its id."""
    child = os.fork()
    if child:
        return child
    try:
        copy = folder / f"copy-{number}"
        copy.mkdir()
        for path in ROOT.iterdir():
            if not path.name.startswith(".") and path.name not in LEFT:
                copied = shutil.copytree if path.is_dir() else shutil.copyfile
                copied(path, copy / path.name)
        with open(folder / f"found-{number}", "w") as lines:
            for file, tests, change in work:
                began = time.monotonic()
                passed = passes(copy, file, tests, change)
                print(int(passed), int(change is None), file=lines, flush=True)
                if passed == (change is None):
                    with NOTES.open("a") as notes:
                        print(
                            json.dumps({"file": file, "tests": tests, "state": state(file, tests), "change": change}),
                            file=notes,
                        )
                if change:
                    said = f"{'SURVIVED' if passed else 'found'} {change!r}"
                else:
                    said = "passes as it is" if passed else f"FAILS AS IT IS: {tests}"
                print(f"{file}: {said} ({time.monotonic() - began:.0f} s)", flush=True)
    finally:
        os._exit(0)


def tried(work: list[tuple[str, str, Change | None]]) -> list[list[str]]:
    """For each of `work`, tried by two processes: whether its tests passed, and whether it was the file as it is."""
    workers = min(2, os.cpu_count() or 1, len(work))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for child in [started(Path(folder), work[number::workers], number) for number in range(workers)]:
            os.waitpid(child, 0)
        return [line.split() for path in Path(folder).glob("found-*") for line in path.read_text().splitlines()]


def main(words: list[str]) -> int:
    if wrong := check():
        print(*wrong, sep="\n")
        return 1
    if lost := [word for word in words if not any(word in file for file, *_ in FAULTS)]:
        print(
            f"file = {lost[0]!r}: must be part of a name such as simulation or lab/own; `python tests/faults.py` tries all"
        )
        return 2
    rows = [row for row in FAULTS if not words or any(word in row[0] for word in words)]
    work: list[tuple[str, str, Change | None]] = [(file, tests, None) for file, tests, _ in rows]
    work += [(file, tests, change) for file, tests, changes in rows for change in changes]
    total, before = len(work) - len(rows), noted()
    every = len(work)
    work = [
        (file, tests, change) for file, tests, change in work if (file, tests, state(file, tests), change) not in before
    ]
    if len(work) < every:
        print(f"{every - len(work)} of {every} as noted before", flush=True)
    for module in ("matplotlib.pyplot", "numpy", "pandas", "safetensors.torch", "scipy.stats", "torch"):
        import_module(module)  # once, and not in every fork
    began = time.monotonic()
    for part in ([one for one in work if one[2] is None], [one for one in work if one[2] is not None]):
        try:
            lines = tried(part)
        except KeyboardInterrupt:
            print("stopped; the same command goes on")
            return 130
        if len(lines) != len(part):
            print(f"{len(part) - len(lines)} of {len(part)} have not been tried")
            return 1
        if ["0", "1"] in lines:
            print("a test fails without any fault: mend it first")
            return 1
    survived = sum(line == ["1", "0"] for line in lines)
    found, minutes = total - survived, (time.monotonic() - began) / 60
    print(f"{total} faults: {found} found, {survived} survived ({found / total:.1%} found), {minutes:.0f} minutes")
    return 0 if found >= LEAST * total else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
