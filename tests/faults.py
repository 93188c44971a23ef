"""Faults planted one at a time in a copy of the package: does a test fail?

    python tests/faults.py                  all of them; prints each that survives, and how many were found
    python tests/faults.py simulation lab   those of files whose name has one of the words

A row of FAULTS is a file of fedlib, the tests that are run (those that know the file best first; `golden:X` is the golden
case of method X), and each text of the file that stands there once with what it becomes. A fault that no test notices is
printed; fewer than LEAST found is exit status 1. What was found is noted in faults.jsonl and not tried again while the file
and its tests are what they were: an interrupted run goes on, and after a change only what it concerns is tried.
For the night: about an hour on two cores.
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
from importlib import import_module
from pathlib import Path

import pytest

# ruff: noqa: E501, a fault a line

ROOT = Path(__file__).parents[1]
LEAST = 0.97
NOTES = ROOT / "faults.jsonl"
SECONDS = 600  # processor time after which a fault that hangs its tests counts as found, or six times as long
COPIED = ("fedlib", "packages", "tests", "results", "notebooks", "docs", "workflow", "pyproject.toml", "README.md", "CITATION.cff")

Change = tuple[str, str]
FAULTS: list[tuple[str, str, list[Change]]] = [
    ('simulation.py',
     'tests/test_simulation.py tests/algorithms/test_exchange.py tests/algorithms/test_contract.py::test_clients_elsewhere_give_the_same_bits tests/test_border.py tests/test_protocols.py tests/test_optimisers.py tests/test_newcomers.py tests/lab/test_budgets.py',
     [
        ('max(1, int(participation * num_clients + 0.5))', 'max(1, int(participation * num_clients))'),
        ('max(1, int(participation * num_clients + 0.5))', 'int(participation * num_clients + 0.5)'),
        ('require(rounds >= 1,', 'require(rounds >= 0,'),
        ('generator(seed, "sampling", round)', 'generator(seed, "sampling", 0)'),
        ('replace=False)', 'replace=True)'),
        ('server_context(len(outcome.round_rows) - 1, rounds)', 'server_context(len(outcome.round_rows), rounds)'),
        ('ended = outcome.status == "diverged" or len(measured)', 'ended = len(measured)'),
        ('bool(enough and measured and enough(outcome))', 'bool(enough and measured)'),
        ('epochs=visits * federation.settings.epochs', 'epochs=federation.settings.epochs'),
        ('not federation.newcomer_visits and round == rounds - 1', 'round == rounds - 1'),
        ('            client.reset()\n', ''),
        ('or len(measured) >= rounds or stalled', 'or len(measured) >= rounds'),
        ('stalled = 0 < patience < len(measured)', 'stalled = 0 < patience <= len(measured)'),
        ('if not finite or (losses', 'if (losses'),
        ('(losses and not np.isfinite(loss))', '(losses and np.isinf(loss))'),
        ('        client.visited = True\n', '        pass\n'),
        ('loss = diagnostics.pop("loss", context.loss)', 'loss = context.loss'),
        ('loss = torch.where(finite, ', 'loss = torch.where(finite | True, '),
        ('elif not finite:\n        loss = np.nan', 'elif not finite:\n        pass'),
        ('torch.cat([client.validation, client.test]))\n    return', 'torch.cat([client.test, client.validation]))\n    return'),
        ('hit[cut:].to(wide).mean()', 'hit.to(wide).mean()'),
        ('next(iter(hits.values()))[:cut]', 'next(iter(hits.values()))[cut:]'),
        ('row[name] = _mean(measured)', 'row[name] = _mean(values)'),
        ('_mean(values[sampled])', '_mean(values)'),
        ('row[f"{name}_all"] = _mean(values)', 'row[f"{name}_all"] = _mean(measured)'),
        ('sum(sum(training.images_of_epochs(federation.settings, info.num_samples)) for', 'sum(info.num_samples for'),
        ('"download_words": sum(message.words() for message in downloads)', '"download_words": sum(message.words() for message in uploads)'),
        ('values[0] if len(set(values)) == 1 else float(np.mean(values))', 'float(np.mean(values))'),
        ('federation.last_trained[client.info.architecture] = client.id', 'federation.last_trained.setdefault(client.info.architecture, client.id)'),
        ('not client.visited and federation.inherit(client, request.round)', 'federation.inherit(client, request.round)'),
        ('client.id if apart else client.info.architecture', 'client.info.architecture'),
        ('require(name not in row, f"{algorithm.name} diagnostic"', 'require(True, f"{algorithm.name} diagnostic"'),
        ('hits, finite = _hits(algorithm, client, context.num_classes)', 'hits, finite = _hits(algorithm, client, context.num_classes)\n        finite = finite | True'),
     ]),
    ('federation.py',
     'tests/test_simulation.py tests/test_border.py tests/test_protocols.py tests/test_public.py tests/test_refusals.py',
     [
        ('self.round, self.client.id)', 'self.round, None)'),
        ('return randomness.generator(self.seed, purpose, self.round)', 'return randomness.generator(self.seed, purpose, 0)'),
        ('if name not in uncounted)', ')'),
        ('torch.cat([self.train, self.validation, self.test]), self.test)', 'torch.cat([self.train, self.validation, self.test]), self.test[:0])'),
        ('        return self._pool\n', '        return self.whole\n'),
        ('zlib.crc32(architecture.encode())', '0'),
        ('return copy.deepcopy(self.states[architecture])', 'return self.states[architecture]'),
        ('if self.client is not None:\n                return', 'if self.client is None:\n                return'),
        ('require(0 <= index < size, field', 'require(0 <= index <= size, field'),
        ('if index in owner:', 'if index in owner and owner[index] == name:'),
        ('_check_each_image_once(parts, public if public_dataset is None else None)', '_check_each_image_once(parts, None)'),
        ('id % len(self.architectures)', '0'),
        ('torch.full_like(pool.labels, -1))\n        return', 'pool.labels)\n        return'),
        ('(self.protocol.inherit == "first_round" and round == 0)', 'self.protocol.inherit == "first_round"'),
        ('if donor is None or not inherits:', 'if donor is None:'),
        ('settings.epochs if epochs is None else epochs', 'epochs or settings.epochs'),
        ('self.loss = found if epochs else self.loss', 'self.loss = found'),
        ('settings.lr if lr is None else lr', 'settings.lr'),
        ('stream, an_epoch = self.generator("augmentation")', 'stream, an_epoch = self.generator("batches")'),
        ('self.generator(support) if support else None', 'self.generator(purpose) if support else None'),
        ('(0.5,) * channels, (0.5,) * channels', '(0.5,) * channels, (1.0,) * channels'),
        ('if self._fetch is not None:\n            self.restore(self._fetch())', 'if self._fetch is None:\n            self.restore(self._fetch())'),
        ('empty = any(size == 0 < share', 'empty = all(size == 0 < share'),
        ('self._model, self._pool, self._state, self._fetch, self.visited = None, None, {}, None, False', 'self._model, self._pool, self._state, self._fetch, self.visited = None, None, {}, None, True'),
     ]),
    ('training.py',
     'tests/test_training.py tests/data/test_kinds.py tests/lab/test_threads.py tests/test_border.py tests/test_simulation.py tests/test_optimisers.py',
     [
        ('if self.stored.dtype == torch.int64:\n            return', 'if False:\n            return'),
        ('with exclusive, torch.inference_mode(False), torch.enable_grad(), ExitStack() as stack:', 'with torch.inference_mode(False), torch.enable_grad(), ExitStack() as stack:'),
        ('torch.autocast(kind, enabled=False)', 'torch.autocast(kind)'),
        ('        torch.clear_autocast_cache()\n', ''),
        ('(product, "fp32_precision", "ieee")', '(product, "fp32_precision", "tf32")'),
        ('stack.callback(setattr, of, name, getattr(of, name))', 'pass'),
        ('(_ONEDNN, "enabled", True)', '(_ONEDNN, "enabled", _ONEDNN.enabled)'),
        ('        torch.set_float32_matmul_precision("highest")\n', ''),
        ('if torch.get_default_device().type != "cpu":', 'if not torch.get_default_device():'),
        ('torch.set_num_threads(THREADS)', 'torch.set_num_threads(torch.get_num_threads())'),
        ('stack.callback(torch.set_num_threads, torch.get_num_threads())', 'pass'),
        ('        torch.set_default_dtype(torch.float32)\n', ''),
        ('+ weight / 2 * distance', '+ weight * distance'),
        ('sub_(mean).div_(std)', 'sub_(mean)'),
        ('rows = rows.to(torch.bfloat16)', 'rows = rows'),
        ('labels[hidden] = -1', 'labels[hidden[:0]] = -1'),
        ('labels, places = torch.full_like(self.labels, -1)', 'labels, places = self.labels.clone()'),
        ('torch.full_like(self.labels, len(indices))', 'torch.zeros_like(self.labels)'),
        ('stream.permutation(len(indices))', 'np.arange(len(indices))'),
        ('return [count] * int(settings.epochs)', 'return [count]'),
        ('max(1, round(part * count))', 'round(part * count)'),
        ('order[:count].split(sizes)', 'order[-count:].split(sizes)'),
        ('sizes[-1] == 1 < size', 'sizes[-1] == 0 < size'),
        ('range(0, max(count, 1), size)]', 'range(0, max(count - size + 1, 1), size)]'),
        ('momentum=settings.momentum, weight_decay=settings.weight_decay', 'momentum=0.0, weight_decay=settings.weight_decay'),
        ('settings.lr, weight_decay=settings.weight_decay, fused=True)\n    if', 'settings.lr, weight_decay=0.0, fused=True)\n    if'),
        ('if settings.clip_norm:', 'if False:'),
        ('optimiser.zero_grad()\n    images =', 'images ='),
        ('len(images) == 1 else []', 'len(images) == 0 else []'),
        ('F.log_softmax(logits, 1), teacher.detach().softmax(1), reduction="batchmean")', 'F.log_softmax(logits, 1), teacher.softmax(1), reduction="batchmean")'),
        ('teacher.detach().softmax(1), reduction="batchmean")', 'teacher.detach().softmax(1), reduction="mean")'),
        ('total += value * len(labels)', 'total += value'),
        ('total / max(1, sum(images_of_epochs(settings, len(indices))))', 'total / max(1, len(indices))'),
        ('training_mode(modules), without_gradients(frozen)', 'training_mode(modules)'),
        ('with fork_torch(dropout), training_mode', 'with training_mode'),
        ('member.sum(1, keepdim=True)', 'len(indices)'),
        ('return stacked.mean(0) if stacked.is_floating_point() else stacked.amax(0)', 'return stacked.mean(0) if stacked.is_floating_point() else stacked.amin(0)'),
        ('tensor * (weight / total)', 'tensor / len(tensors)'),
        ('if own.is_floating_point() and own.numel()]', 'if own.numel() > 1 and own.is_floating_point()]'),
        ('pair.isfinite().all()', 'pair.isnan().logical_not().all()'),
        ('(erase < 0.5)', '(erase < 2)'),
        ('torch.where(flip < 0.5, width', 'torch.where(flip < 1.5, width'),
        ('(9 * down).long() - 4', '(8 * down).long() - 4'),
        ('if parameter.requires_grad]\n    for', ']\n    for'),
     ]),
    ('partition.py',
     'tests/test_partition.py tests/test_natural_partitions.py tests/test_border.py tests/lab/test_own_parts.py tests/test_protocols.py tests/test_refusals.py',
     [
        ('stream.permutation(np.flatnonzero(labels == label))', 'np.flatnonzero(labels == label)'),
        ('np.floor(np.cumsum(sizes) + 1e-9)', 'np.floor(np.cumsum(sizes) + 1)'),
        ('left[shares[client] > 0] = -1', 'left[shares[client] < 0] = -1'),
        ('stream.uniform(0.4, 0.6, count)', 'stream.uniform(0.5, 0.5, count)'),
        ('left == left.max()', 'left > 0'),
        ('slots[stream.choice(num_classes, wanted % num_classes, replace=False)] += 1', 'slots += 1'),
        ('stream.dirichlet(np.full(num_clients, alpha), size', 'stream.dirichlet(np.full(num_clients, 1.0), size'),
        ('np.cumsum(stream.dirichlet(np.full(num_clients, alpha)))', 'np.cumsum(stream.dirichlet(np.full(num_clients, 1.0)))'),
        ('least * np.arange(1, num_clients + 1)', '0 * np.arange(1, num_clients + 1)'),
        ('np.argsort(levels[own], kind="stable")', 'np.argsort(-levels[own], kind="stable")'),
        ('clients = range(group, num_clients, count)', 'clients = range(group, group + 1)'),
        ('"groups": None if groups is None else groups[indices]', '"groups": groups'),
        ('if all(size >= least for', 'if any(size >= least for'),
        ('labels[:num_train], fraction, generator(seed, "public"))', 'labels, fraction, generator(seed, "public"))'),
        ('private = np.setdiff1d(np.arange(len(labels)), np.asarray(reserved, dtype=np.int64))', 'private = np.arange(len(labels))'),
        ('        private = private[private < num_train]\n', '        pass\n'),
        ('[len(shuffled) * 4 // 5]', '[len(shuffled) * 3 // 5]'),
        ('wrong = ids[(times > 1) | ', 'wrong = ids['),
        ('| (ids >= len(labels))]', '| (ids > len(labels))]'),
        ('not all(map(np.array_equal, dealt, before))', 'not any(map(np.array_equal, dealt, before))'),
        ('labels.copy(), num_clients', 'labels, num_clients'),
        ('kind="stable")[: total - sizes.sum()]] += 1', 'kind="stable")[: total - sizes.sum()]] += 0'),
        ('(np.arange(len(mine)) + 0.5) / len(mine)', 'np.arange(len(mine)) + 0.5'),
        ('max(1, round(fraction * len(labels)))', 'max(1, int(fraction * len(labels)) + 1)'),
        ('count = min(count, len(indices))', 'count = min(count + 1, len(indices))'),
     ]),
    ('border.py',
     'tests/test_border.py tests/lab/test_border_of_runs.py',
     [
        ('return value.detach().clone() if clone else value', 'return value.detach() if clone else value'),
        ('require(clone or value.grad_fn is None', 'require(True'),
        ('value.layout == torch.strided and not value.is_meta', 'True'),
        ('type(key) in (str, int)', 'isinstance(key, str | int)'),
        ('if type(value) in (type(None), bool, int, float, str):', 'if isinstance(value, type(None) | bool | int | float | str):'),
        ('with others_code(what), randomness.fork_everything(stream):', 'with others_code(what):'),
        ('.spawn(len(STEPS))[STEPS.index(step)]', ''),
        ('generator(seed, "own", round, client)', 'generator(seed, "own", round)'),
        ('torch.set_num_threads(training.THREADS)\n', 'pass\n'),
        ('torch.set_default_dtype(torch.float32)\n', 'pass\n'),
        ('torch.set_grad_enabled(True)\n', 'pass\n'),
        ('values.shape == (count, num_classes)', 'values.shape[0] == count'),
        ('require(values.is_floating_point()', 'require(True'),
        ('client.model.eval()\n', 'pass\n'),
        ('client.state[name] = copied(client.state[name],', 'copied(client.state[name],'),
        ('require(found[name][2] == built[name][2]', 'require(True'),
        ('found[name][:2] == built[name][:2]', 'found[name][:1] == built[name][:1]'),
        ('return int(value) if abs(int(value)) < 2**63 else None', 'return int(value)'),
        ('_check_server(what, server)\n    return returned', 'return returned'),
     ]),
    ('check.py',
     'tests/test_border.py',
     [
        ('if not (own := own_parts(algorithm, federation)):', 'own = own_parts(algorithm, federation)\n    if True:'),
        ('* border.own_method(algorithm)', '* False'),
        ('_compare(f"{algorithm.name}: called twice, begun alike,", whole[0], again[0])', 'pass'),
        ('_compare(f"{algorithm.name}: stopped after round 0 and resumed,", whole[1], again[1])', 'pass'),
        ('federation.clients[id].restore(snapshot)', 'pass'),
        ('.clone()\n\n\ndef _played', '\n\n\ndef _played'),
        ('if value != read_only[thing]:', 'if False:'),
        ('if border.digest([client.snapshot()]) != kept:', 'if False:'),
        ('if border.digest([outcome.server]) != server:', 'if False:'),
        ('if border.digest(sent[:1]) != border.digest(sent[1:]):', 'if False:'),
     ]),
    ('randomness.py',
     'tests/test_border.py tests/lab/test_border_of_runs.py tests/test_training.py tests/test_simulation.py',
     [
        ('PURPOSES.index(purpose), round + 1,', 'PURPOSES.index(purpose), 0,'),
        ('0 if client is None else client + 1', '0 if client is None else client'),
        ('torch.manual_seed(seed)', 'torch.manual_seed(0)'),
        ('if torch.initial_seed() != seed:', 'if False:'),
        ('np.random.set_state(numpy)', 'pass'),
        ('random.setstate(python)', 'pass'),
        ('if not exclusive._is_owned():', 'if exclusive._is_owned():'),
        ('with exclusive, torch.random.fork_rng', 'with torch.random.fork_rng'),
     ]),
    ('models.py',
     'tests/test_models.py tests/algorithms/test_contract.py::test_refused tests/algorithms/test_contract.py::test_kind_and_shape tests/test_border.py tests/lab/test_own_parts.py',
     [
        ('"CNN-4": (32, 800)', '"CNN-4": (32, 1000)'),
        ('nn.Linear(_pixels(sample, _twice_halved) * filters, width)', 'nn.Linear(_pixels(sample, _twice_halved) * filters, width, bias=False)'),
        ('if sample.kind != kind:', 'if False:'),
        ('require(min(sample.shape[1:]) >= least', 'require(max(sample.shape[1:]) >= least'),
        ('with fork_torch(again):', 'with fork_torch(stream):'),
        ('if shared or not same:', 'if shared:'),
        ('if shared or not same:', 'if not same:'),
        ('trained.get(name, False)', 'False'),
        ('return header.in_features', 'return header.out_features'),
        ('last = [nn.ReLU()] if output == "relu" else []', 'last = [nn.ReLU()]'),
     ]),
    ('isolated.py',
     'tests/test_isolated.py tests/algorithms/test_contract.py::test_in_the_first_round_a_method_and_its_isolated_self_are_equal tests/test_border.py',
     [
        ('replace(first, round=0)', 'first'),
        ('replace(build, client=None)', 'build'),
        ('infos=[client.info])', 'infos=[client.info, client.info])'),
        ('[Upload(client.info, travelling)], known) or {}', '[], known) or {}'),
        ('return Message(diagnostics=upload.diagnostics | numbers)', 'return Message(diagnostics=upload.diagnostics)'),
     ]),
    ('optimisers.py',
     'tests/test_optimisers.py tests/test_refusals.py',
     [
        ('in sorted(given))', 'in given)'),
        ('if momentum and', 'if False and'),
        ('if key in OURS:', 'if False:'),
        ('"weight_decay": weight_decay, "fused"', '"weight_decay": 0.0, "fused"'),
        ('bit_length()))[round]', 'bit_length()))[0]'),
        ('{key: rounds for key', '{key: 2 * rounds for key'),
        ('made.step()\n        except', 'pass\n        except'),
        ('if not 0 <= float(value)', 'if not -1 <= float(value)'),
     ]),
    ('devices.py',
     'tests/test_gpu.py',
     [
        ('device.index < torch.cuda.device_count()', 'True'),
        ('len(kinds) == 1', 'True'),
        ('len(set(names)) == len(names)', 'True'),
        ('return given.partition(",")[0].partition(":")[0]', 'return given.partition(",")[0]'),
        ('use_deterministic_algorithms(wanted)', 'use_deterministic_algorithms(True)'),
        ('            if _plain(operation).startswith', '            if not _plain(operation).startswith'),
     ]),
    ('zoo.py',
     'tests/test_zoo.py',
     [
        ('network.heads = nn.Linear(width, FEATURES)', 'network.heads.head = nn.Linear(width, FEATURES); nn.init.zeros_(network.heads.head.weight)'),
        ('if channels != first.in_channels:', 'if False:'),
        ('elif not part.startswith(own):', 'elif False:'),
        ('found[one].shape == tensor.shape', 'True'),
        ('src_key_padding_mask=padding', 'src_key_padding_mask=None'),
        ('height == width and not width % size', 'height == width'),
     ]),
    ('errors.py',
     'tests/lab/test_damage.py tests/test_border.py tests/test_refusals.py',
     [
        ('except (ValueError, OverflowError):\n        number', 'except ValueError:\n        number'),
        ('require(not lost, field', 'require(True, field'),
        ('if kind is int:\n        require(number.is_integer()', 'if kind is int:\n        require(True'),
        ('require(value not in listed[:place], field', 'require(True, field'),
        ('not isinstance(value, bool), field, value, allowed)\n    if kind is int:', 'True, field, value, allowed)\n    if kind is int:'),
        ('if isinstance(value, str) and value in known:', 'if value in known:'),
        ('os.environ[variable] = str(path)', 'pass'),
     ]),
    ('metrics.py',
     'tests/test_metrics.py tests/test_simulation.py tests/test_refusals.py',
     [
        ('logits.argmax(1) == labels', 'logits.argmin(1) == labels'),
        ('.sum(0) / of_class.sum(0)).mean()', '.sum(0) / of_class.sum(0)).max()'),
        ('[: -(-len(accuracies) // 10)].mean()', '[: len(accuracies) // 10 + 1].mean()'),
        ('np.sort(accuracies)[:', 'np.sort(accuracies)[::-1][:'),
        ('METRICS.get(metric.name) not in BUILT_IN and metric.name not in columns', 'metric.name not in columns'),
        ('BUILT_IN and metric.name not in columns', 'BUILT_IN'),
        ('metric.of_client(logits.clone(), labels.clone())', 'metric.of_client(logits, labels)'),
        ('return 100.0 if self.unit == "%" else 1.0', 'return 100.0'),
     ]),
    ('show/stats.py',
     'tests/show/test_intervals.py tests/show/test_stats.py',
     [
        ('sample.std(ddof=1)', 'sample.std()'),
        ('/ np.sqrt(len(sample))', '/ len(sample)'),
        ('stdtrit(len(sample) - 1, 0.975)', 'stdtrit(len(sample), 0.975)'),
        ('stdtrit(len(sample) - 1, 0.975)', 'stdtrit(len(sample) - 1, 0.95)'),
     ]),
    ('show/intervals.py',
     'tests/show/test_intervals.py tests/test_compare.py',
     [
        ('by = rounds["validation_accuracy"][there] if rule == "validation" else values', 'by = values'),
        ('by = rounds["validation_accuracy"][there] if rule == "validation" else values', 'by = rounds["validation_accuracy"][there]'),
        ('.tail(10).mean()', '.tail(9).mean()'),
        ('values.iloc[-1])', 'values.max())'),
        ('there = rounds["round"].to_numpy() >= 0', 'there = rounds["round"].to_numpy() >= -1'),
        ('np.nanargmax(', 'np.nanargmin('),
        ('np.nanargmax(', 'np.argmax('),
        ('run.status != "diverged" and trained ==', 'trained =='),
        ('trained == list(range(max(1, asked)))', 'len(trained) > 0'),
        ('return metrics.find(column).scale * selected_accuracy(', 'return selected_accuracy('),
     ]),
    ('lab/records.py',
     'tests/lab/test_store.py tests/test_metrics.py tests/papers/test_recorded.py tests/lab/test_change.py tests/lab/test_damage.py tests/lab/test_bits.py tests/test_refusals.py',
     [
        ('if hashlib.sha256(content[name]).hexdigest() != digests[name]:', 'if False:'),
        ('json.loads(files.unseal(files.regular(path / "DONE").read_bytes()))', 'json.loads((path / "DONE").read_bytes().partition(b"\\n")[2])'),
        ('if digest != record.files[file.name]:', 'if False:'),
        ('if (last > spec.rounds or (last < spec.rounds and not spec.may_end_early)) and done', 'if False and done'),
        ('if record.hashed != resolved.hashed:', 'if False:'),
        ('stale, keep = record.stale and not reuse_stale,', 'stale, keep = False,'),
        ('stale, keep = record.stale and not reuse_stale,', 'stale, keep = record.stale,'),
        ('enough = stale or (measured and (', 'enough = stale or (('),
        ('(keep == "none" or weights(record, keep) is not None)', 'True'),
        ('if whole(path):\n                raise', 'if False:\n                raise'),
        ('not in ("unfinished", "damaged")', 'not in ("unfinished", "damaged", "unreadable")'),
        ('for old in path.glob("final-*.pt"):\n        if old.name not in contents:', 'for old in path.glob("final-*.pt"):\n        if False:'),
        ('    clientfiles.remove(path / "checkpoint.pt")\n    (path / SESSIONS)', '    (path / SESSIONS)'),
        ('left.stat().st_mtime <= done.stat().st_mtime', 'False'),
        ('if said[1] else said[0]', 'if False else said[0]'),
     ]),
    ('lab/files.py',
     'tests/lab/test_checkpoint.py tests/lab/test_store.py tests/lab/test_client_files.py tests/lab/test_damage.py tests/lab/test_bits.py tests/test_refusals.py',
     [
        ('list(files)[-1].unlink(missing_ok=True)', 'pass'),
        ('temporary.unlink()', 'pass'),
        ('hashlib.sha256(sealed).hexdigest().encode() != digest', 'False'),
        ('while (aside := path.with_name(f"{path.name}.{reason}-{number}")).exists():\n        number += 1', 'aside = path.with_name(f"{path.name}.{reason}-{number}")'),
        ('os.fsync(file.fileno())\n        if len', 'pass\n        if len'),
     ]),
    ('lab/checkpoint.py',
     'tests/lab/test_checkpoint.py tests/lab/test_client_files.py tests/lab/test_bits.py tests/lab/test_store.py tests/test_refusals.py',
     [
        ('if not foreign:', 'if True:'),
        ('io.BytesIO(files.unseal(files.regular(path, LARGEST).read_bytes()))', 'io.BytesIO(path.read_bytes().partition(b"\\n")[2])'),
        ('federation.last_trained = trained', 'pass'),
        ('if row["round"] >= 0}', '}'),
        ('stopping = bool(stop) and not last', 'stopping = bool(stop)'),
        ('if checkpoint is not None and clients is not None and (due or stopping):', 'if checkpoint is not None and clients is not None and due:'),
        ('            if stopping:\n                then = "the', '            if False:\n                then = "the'),
        ('    clients.forget()\n', '    pass\n'),
        ('if received:\n            raise', 'if False:\n            raise'),
     ]),
    ('lab/clientfiles.py',
     'tests/lab/test_client_files.py tests/lab/test_bits.py tests/lab/test_store.py',
     [
        ('if hashlib.file_digest(file, "sha256").hexdigest() != digest:', 'if False:'),
        ('if hashlib.sha256(content).hexdigest() != self.newest[id][1]:', 'if False:'),
        ('if oldest in self.changed:\n                self._write(oldest)', 'if False:\n                self._write(oldest)'),
        ('client.offload(partial(self.fetch, client.id))\n            else:\n                client.reset()', 'client.offload(partial(self.fetch, client.id))'),
        ('self.changed.add(client.id)\n        self._hold', 'self._hold'),
        ('self.number += 1', 'pass'),
        ('(self.folder / name).unlink(missing_ok=True)', 'pass'),
        ('int(said["number"]) + 1', 'int(said["number"])'),
        ('self.changed | {id for id in self.newest if self._name(id) not in present}', 'self.changed'),
     ]),
    ('lab/estimates.py',
     'tests/lab/test_progress.py',
     [
        ('one.seconds * work / its', 'one.seconds'),
        ('+ (one.of_record != of_record)', ''),
        ('{"algorithm": 3}', '{"algorithm": 0}'),
        (' or bf16_cost() < SLOW', ''),
        ('torch.random.fork_rng(devices=[])', 'contextlib.nullcontext()'),
        ('record.status == "finished" and seconds', 'seconds'),
        ('+ 100 * there', ''),
     ]),
    ('lab/launch.py',
     'tests/papers/test_recorded.py::test_own_parts_that_make_something_else_from_the_same_source_are_another_run tests/lab/test_border_of_runs.py tests/lab/test_own_parts.py tests/lab/test_bits.py tests/lab/test_store.py tests/test_refusals.py',
     [
        ('            stdout=2,\n', ''),
        ('    with suppress(KeyboardInterrupt, EOFError, OSError), checkpoint', '    with checkpoint'),
        ('if status and not stop:', 'if False:'),
        ('changed = [part for part in made if made[part] != known.get(part)]', 'changed: list[str] = []'),
        ('                    resolved.check_own_parts()\n                return _compute', '                return _compute'),
        ('if record is not None and not resolved.own:\n        return record', 'if record is not None:\n        return record'),
        ('if single or not item.portable]', 'if single]'),
        ('raise FedlibError("; ".join(failures))', 'pass'),
     ]),
    ('lab/spec.py',
     'tests/lab/test_checkpoint.py tests/lab/test_keys.py tests/lab/test_change.py tests/lab/test_damage.py tests/lab/test_own_parts.py tests/test_metrics.py tests/test_refusals.py',
     [
        ('if values["partition"] not in ("dirichlet", "quantity-skew"):\n        del hashed["alpha"]', 'if False:\n        del hashed["alpha"]'),
        ('"std": list(dataset.std)', '"std": []'),
        ('if digests:\n        hashed["own"] = digests', 'if False:\n        hashed["own"] = digests'),
        ('require(3 * values["num_clients"] <= images', 'require(values["num_clients"] <= images'),
        ('hashed["public"] = data.info(values["public_dataset"]).fingerprint', 'pass'),
        ('values["participation"] = min(1.0, SELECTED / max(1, values["num_clients"]))', 'values["participation"] = SELECTED / max(1, values["num_clients"])'),
        ('if name in models.BUILDERS and not models.is_built_in(name):', 'if False:'),
        ('changed = (f"{part} {number}" for part, number in self.numerics.items() if number != 1)', 'changed = ()'),
        ('return same and {*self.spec.metrics', 'return {*self.spec.metrics'),
        ('={digests[name]}', ''),
     ]),
    ('../packages/flower/fedlib_flower/wire.py',
     'packages/flower/tests/test_wire.py packages/flower/tests/test_over_bytes.py packages/flower/tests/test_flower.py',
     [
        ('if len(content) > LIMIT:', 'if False:'),
        ('if depth > DEPTH or not isinstance(value, dict):', 'if not isinstance(value, dict):'),
        ('if used != set(tensors):', 'if False:'),
        ('if not (low <= value <= high or absent):', 'if False:'),
        ('require(reply.upload.num_samples in counts,', 'require(True,'),
        ('require(value == expected, f"{what}: {name} that it answers"', 'require(True, f"{what}: {name} that it answers"'),
        ('if set(sized) != set(upload.tensors):', 'if False:'),
        ('        if not fits:\n', '        if False:\n'),
        ('1 <= length <= wanted.most', '1 <= length'),
        ('lengths.setdefault(wanted.name, length) == length', 'True'),
        ('choose(f"{what}: accuracy", name,', 'print(f"{what}: accuracy", name,'),
        ('if not diverged and tensor.is_floating_point()', 'if tensor.is_floating_point()'),
        ('if len(tensor.unique()) < len(tensor):', 'if False:'),
        ('require(tensor.dtype == each.dtype,', 'require(True,'),
     ]),
    ('fields.py',
     'tests/lab/test_keys.py tests/lab/test_change.py tests/test_refusals.py',
     [
        ('"ge": operator.ge', '"ge": operator.gt'),
        ('"lt": operator.lt', '"lt": operator.le'),
        ('require(not is_text,', 'require(True,'),
        ('if "choices" in limits:', 'if False:'),
        ('and values[item.name] != neutral:', ':'),
        ('if today in found:', 'if False:'),
        ('found[_first(item)] = values[item.name]', 'found[item.name] = values[item.name]'),
     ]),
    ('numerics.py',
     'tests/lab/test_checkpoint.py tests/lab/test_change.py tests/lab/test_keys.py tests/test_golden.py',
     [
        ('if version(part) != number]', 'if False]'),
        ('dict.fromkeys(parts(hashed), 1) | dict(stored or {})', 'versions(hashed) | dict(stored or {})'),
        ('dict.fromkeys(parts(hashed), 1) | dict(stored or {})', 'dict(stored or dict.fromkeys(parts(hashed), 1))'),
     ]),
    ('training.py',
     'golden:Standalone',
     [
        ('return F.cross_entropy(model(images), labels)\n', 'return -F.cross_entropy(model(images), labels)\n'),
        ('flip < 0.5, width - 1', 'flip > 0.5, width - 1'),
        ('total += value * len(labels)', 'total += value * settings.batch_size'),
     ]),
    ('federation.py',
     'golden:Standalone',
     [
        ('stream, second = self.generator(purpose)', 'stream, second = self.generator("pretrain")'),
        ('zlib.crc32(architecture.encode())', '0'),
     ]),
    ('simulation.py',
     'golden:Standalone',
     [
        ('"sampling", round)', '"sampling", round + 1)'),
        ('hit[cut:].to(wide)', 'hit[:cut].to(wide)'),
     ]),
    ('algorithms/fedavg.py',
     'golden:FedAvg',
     [
        ('weights = [message.num_samples for', 'weights = [1 + message.num_samples % 2 for'),
        ('client.model.load_state_dict(message.tensors)', 'pass'),
     ]),
    ('training.py',
     'golden:FedAvg',
     [
        ('weight / total)', 'weight / (total + 5))'),
        ('stream.spawn(1)[0]', 'stream.spawn(2)[1]'),
     ]),
    ('federation.py',
     'golden:FedAvg',
     [
        ('"init", client=whose', '"method", client=whose'),
     ]),
    ('training.py',
     'golden:FedProx',
     [
        ('+ weight / 2 * distance', '- weight / 2 * distance'),
        ('+ weight / 2 * distance', '+ weight * distance'),
        ('F.mse_loss(own, other,', 'F.mse_loss(own.detach(), other,'),
     ]),
    ('algorithms/fedprox.py',
     'golden:FedProx',
     [
        ('copy.deepcopy(client.model)', 'context.build(client.info.architecture)'),
     ]),
    ('algorithms/per_fedavg.py',
     'golden:Per-FedAvg',
     [
        ('parameter - alpha * gradient', 'parameter + alpha * gradient'),
        ('support="method"', 'support="server"'),
        ('[*parameters.values()])', '[*parameters.values()], create_graph=True)'),
        ('"pretrain"', '"batches"'),
        ('Message(client.state["w"]', 'Message(model.state_dict()'),
     ]),
    ('algorithms/pfedme.py',
     'golden:pFedMe',
     [
        ('personal.detach(), self.eta * self.lam', 'personal.detach(), -self.eta * self.lam'),
        ('generator("dropout")', 'generator("method")'),
        ('"reference": w', '"reference": theta'),
        ('range(self.inner_steps)', 'range(self.inner_steps - 1)'),
     ]),
    ('algorithms/pfedbayes.py',
     'golden:pFedBayes',
     [
        ('- ratio.log()', '+ ratio.log()'),
        ('generator("method")', 'generator("dropout")'),
        ('self.zeta / client.num_samples', 'self.zeta / (client.num_samples + 5)'),
        ('posterior.load_state_dict(message.tensors)', 'pass'),
     ]),
    ('algorithms/fml.py',
     'golden:FML',
     [
        ('+ (1 - alpha) * kl', '- (1 - alpha) * kl'),
        ('generator("server")', 'generator("init")'),
        ('return loss_model + loss_shared', 'return loss_model + 0.8 * loss_shared'),
     ]),
    ('training.py',
     'golden:FML',
     [
        ('teacher.detach().softmax(1)', 'teacher.softmax(1)'),
     ]),
    ('algorithms/fedkd.py',
     'golden:FedKD',
     [
        ('(mutual + hints)', '(mutual - hints)'),
        ('mapped.detach()', 'mapped'),
        ('share = both.detach() if', 'share = both if'),
        ('generator("method")', 'generator("server")'),
        ('(1 + context.round)', '(2 - context.round)'),
     ]),
    ('algorithms/lg_fedavg.py',
     'golden:LG-FedAvg',
     [
        ('weights = [message.num_samples for', 'weights = [1 + message.num_samples % 2 for'),
        ('client.model.header.load_state_dict(message.tensors)', 'pass'),
        ('context.train()', 'context.train(purpose="method")'),
     ]),
    ('algorithms/fedclassavg.py',
     'golden:FedClassAvg',
     [
        ('return rho / 2', 'return -rho / 2'),
        ('return rho / 2', 'return rho'),
        ('proximal_loss, **named', 'proximal_loss, purpose="method", **named'),
        ('if self.replace:', 'if not self.replace:'),
        ('F.mse_loss(model.header.weight,', 'F.mse_loss(model.header.weight.detach(),'),
     ]),
    ('algorithms/fd.py',
     'golden:FD',
     [
        ('apart = -(targets', 'apart = (targets'),
        ('] -= sent["outputs"]', '] += sent["outputs"]'),
        ('context.train(fd_loss,', 'context.train(fd_loss, purpose="method",'),
        ('known[labels]).mean()', 'known[labels]).sum()'),
     ]),
    ('algorithms/fedproto.py',
     'golden:FedProto',
     [
        ('+ weight * distance.mean()', '- weight * distance.mean()'),
        ('F.mse_loss(features,', 'F.mse_loss(features.detach(),'),
        ('/ owned.sum()', '/ len(uploads)'),
        ('context.train(prototype_loss,', 'context.train(prototype_loss, purpose="method",'),
     ]),
    ('algorithms/fedmd.py',
     'golden:FedMD',
     [
        ('return F.l1_loss(', 'return -F.l1_loss('),
        ('context.generator("public")', 'context.generator("method")'),
        ('generator("pretrain"), context.public', 'generator("batches"), context.public'),
        ('uploads]).mean(0)', 'uploads]).sum(0)'),
     ]),
    ('algorithms/fccl.py',
     'golden:FCCL',
     [
        ('output, labels) + from_pretrained', 'output, labels) - from_pretrained'),
        ('(correlation + 1).square().sum() - ', '(correlation - 1).square().sum() - '),
        ('context.generator("public")', 'context.generator("method")'),
        ('inter * training.kl', '0.5 * inter * training.kl'),
     ]),
    ('algorithms/fedkemf.py',
     'golden:FedKEMF',
     [
        ('+ weight * gap', '- weight * gap'),
        ('/ len(uploads)', '/ (1 + len(uploads))'),
     ]),
    ('training.py',
     'golden:FedKEMF',
     [
        ('teacher.detach().softmax(1)', 'teacher.softmax(1)'),
     ]),
    ('algorithms/fedgh.py',
     'golden:FedGH',
     [
        ('label).backward()', 'label).neg().backward()'),
        ('fork_torch(context.generator("server"))', 'fork_torch(context.generator("init"))'),
        ('bias], self.server_lr', 'bias], 2 * self.server_lr'),
        ('SGD([weight, bias]', 'SGD([bias]'),
        ('client.model.header.load_state_dict(header)', 'pass'),
     ]),
    ('algorithms/fedssa.py',
     'golden:FedSSA',
     [
        ('+ mu * header.weight[rows]', '- mu * header.weight[rows]'),
        ('= weights.mean(0), ', '= weights.sum(0), '),
        ('context.train()', 'context.train(purpose="method")'),
        ('self.mu0 * math', '0.9 * self.mu0 * math'),
     ]),
    ('algorithms/pfedes.py',
     'golden:pFedES',
     [
        ('+ (1 - mu) * F', '+ (1 + mu) * F'),
        ('"method", epochs', '"batches", epochs'),
        ('F.cross_entropy(enhanced, labels)', 'F.cross_entropy(enhanced.detach(), labels)'),
        ('weights = [message.num_samples for', 'weights = [1 + message.num_samples % 2 for'),
     ]),
    ('algorithms/pfedhr/__init__.py',
     'golden:pFedHR',
     [
        ('+ weight * distance', '- weight * distance'),
        ('generator("server"), context.public', 'generator("public"), context.public'),
        ('server_lr, optimiser="adam"', 'server_lr / 2, optimiser="adam"'),
        ('kl_divergence(target, logits)', 'kl_divergence(logits, target)'),
     ]),
    ('algorithms/pfedhr/reassembly.py',
     'golden:pFedHR',
     [
        ('max(row, key', 'min(row, key'),
     ]),
    ('algorithms/fedtgp.py',
     'golden:FedTGP',
     [
        ('+ weight * (phi * known[labels]).mean()', '- weight * (phi * known[labels]).mean()'),
        ('apart = features - prototypes', 'apart = features.detach() - prototypes'),
        ('+ margin * own)', '- margin * own)'),
        ('stream = context.generator("server")', 'stream = context.generator("method")'),
        ('with fork_torch(context.generator("server"))', 'with fork_torch(context.generator("init"))'),
     ]),
    ('algorithms/fedmrl.py',
     'golden:FedMRL',
     [
        ('return m_small * F', 'return -m_small * F'),
        ('[small(images), model.extractor(images)]', '[model.extractor(images), small(images)]'),
        ('fork_torch(context.generator("method"))', 'fork_torch(context.generator("server"))'),
        ('weights = [message.num_samples for', 'weights = [1 + message.num_samples % 2 for'),
     ]),
    ('algorithms/fedper.py',
     'golden:FedPer',
     [
        ('weights = [message.num_samples for', 'weights = [1 + message.num_samples % 2 for'),
        ('client.model.extractor.load_state_dict(message.tensors)', 'pass'),
        ('context.train()', 'context.train(purpose="method")'),
     ]),
    ('algorithms/fedrep.py',
     'golden:FedRep',
     [
        ('"method", self.head_epochs', '"batches", self.head_epochs'),
        ('self.head_epochs, extractor', '1, extractor'),
        ('mean([message', 'sum([message'),
        ('context.train(split_loss, {"extractor": extractor}, header=header)', 'pass'),
     ]),
    ('algorithms/ditto.py',
     'golden:Ditto',
     [
        ('purpose="method"', 'purpose="batches"'),
        ('weight=self.lam)', 'weight=-self.lam)'),
        ('reference=downloaded', 'reference=trained'),
     ]),
    ('algorithms/fedbabu.py',
     'golden:FedBABU',
     [
        ('tensor.clone() for', '0.9 * tensor.clone() for'),
        ('"method", self.tune_epochs', '"batches", self.tune_epochs'),
        ('context.train(split_loss, {"extractor": model.extractor}, header=model.header)', 'context.train()'),
        ('self.tune_epochs, extractor', '1, extractor'),
     ]),
    ('algorithms/fedgen.py',
     'golden:FedGen',
     [
        ('+ weight * F.cross_entropy(', '- weight * F.cross_entropy('),
        ('context.generator("method")', 'context.generator("server")'),
        ('mean([message[name]', 'sum([message[name]'),
        ('loss = loss + diversity', 'loss = loss - diversity'),
     ]),
    ('algorithms/fedl2g.py',
     'golden:FedL2G',
     [
        ('+ F.mse_loss(g,', '- F.mse_loss(g,'),
        ('parameter - eta * slope', 'parameter + eta * slope'),
        ('create_graph=True)\n', 'create_graph=True)\n    slopes = [2 * slope for slope in slopes]\n'),
        ('generator("pretrain")', 'generator("method")'),
        ('stream, named = context.generator("batches")', 'stream, named = context.generator("method")'),
     ]),
    ("../tests/benchmarks/captured.py", "tests/test_captured.py", [
        ("            into[name].copy_(tensor)\n", "            pass\n"),
        ("                own.copy_(given)\n", "                pass\n"),
        ("    own.end(modules)\n", ""),
        ("tuple((name, *tensor.shape) for name, tensor in batch.items())", "tuple(batch)"),
        ("            for tensor in self._moments():\n                tensor.zero_()\n\n    def end", "\n    def end"),
        ("                given.copy_(own)\n", "                pass\n"),
    ]),
    # Once survived every test.
    ("show/stats.py", "tests/show/test_stats.py", [("critical(correlation, df)))", "critical(correlation[:1, :1], df)))")]),
    ("lab/own.py", "tests/lab/test_own_parts.py", [("self.value((function.__defaults__, function.__kwdefaults__))", "pass")]),
    ("lab/records.py", "tests/lab/test_store.py tests/lab/test_change.py tests/lab/test_damage.py", [('content["rounds.csv"] + content["clients.csv"]', 'content["rounds.csv"]')]),
    ("lab/costs.py", "tests/lab/test_flops.py tests/algorithms/test_contract.py::test_words_in_a_steady_state_round tests/algorithms/test_contract.py::test_a_method_is_priced_at_what_it_runs", [("public * (self.public + self.upload_public)", "public * self.public")]),
    ("algorithms/fedl2g.py", "tests/algorithms/test_fedl2g.py", [("context.rounds + 0.5)", "context.rounds)")]),
    ("algorithms/fedkemf.py", "tests/algorithms/test_fedkemf.py", [("self.server_epochs or context.settings.epochs", "self.server_epochs or 1")]),
    ("algorithms/pfedme.py", "tests/algorithms/test_averages.py", [("            global_part.copy_(personal)\n", "            pass\n")]),
    ("training.py", "tests/test_training.py", [("function(pool.batch(batch)).float()", "function(pool.batch(batch))")]),
    ("../packages/flower/fedlib_flower/wire.py", "packages/flower/tests/test_wire.py", [("name: tensor.shape for name, tensor in stored.items()} != {name: known[name].shape for", "name: 0 for name, tensor in stored.items()} != {name: 0 for")]),
    # Chosen without a look at the tests.
    ('algorithms/ditto.py', 'tests/algorithms/test_averages.py golden:Ditto', [('reference=downloaded, weight=self.lam', 'reference=trained, weight=self.lam')]),
    ('algorithms/fedkd.py', 'tests/algorithms/test_fedkd.py golden:FedKD', [('server["holders"] = [info.id for info, _ in uploads]', 'server["holders"] += [info.id for info, _ in uploads]')]),
    ('algorithms/fedproto.py', 'tests/algorithms/test_fedproto.py golden:FedProto', [('weight * distance.mean()', 'weight * distance.sum() / known[labels].sum().clamp(min=1)')]),
    ('algorithms/fedgh.py', 'tests/algorithms/test_fedgh.py golden:FedGH', [('torch.optim.SGD([weight, bias], self.server_lr)', 'torch.optim.SGD([weight, bias], self.server_lr or context.settings.lr)')]),
    ('algorithms/fd.py', 'tests/algorithms/test_fd.py golden:FD', [('F.mse_loss(shown(logits, outputs), targets[labels]', 'F.mse_loss(logits, targets[labels]')]),
    ('algorithms/fedtgp.py', 'tests/algorithms/test_fedtgp.py golden:FedTGP', [('    both = (counts > 0)[:, None] & (counts > 0)\n    return (distances(centres, centres) * both).amax().clamp(max=tau)', '    return distances(centres, centres).amax().clamp(max=tau)')]),
    ('algorithms/fedssa.py', 'tests/algorithms/test_fedssa.py golden:FedSSA', [('else 1 - mu\n', 'else 1 - self.mu0\n')]),
    ('algorithms/fedmd.py', 'tests/algorithms/test_fedmd.py golden:FedMD', [('context.train(purpose="pretrain", epochs=self.pretrain_epochs)', 'context.train(purpose="pretrain")')]),
    ('algorithms/pfedme.py', 'tests/algorithms/test_averages.py golden:pFedMe', [('optimiser = fresh_optimiser(networks, settings)', 'optimiser = fresh_optimiser(networks, context.settings)')]),
    ('algorithms/pfedhr/reassembly.py', 'tests/algorithms/pfedhr/test_reassembly.py tests/algorithms/test_pfedhr.py golden:pFedHR', [('start, end = i * size // wanted, -(-(i + 1) * size // wanted)', 'start, end = i * size // wanted, max(i * size // wanted + 1, (i + 1) * size // wanted)')]),
    ('algorithms/fedmrl.py', 'tests/algorithms/test_fedmrl.py golden:FedMRL', [('return m_small * F.cross_entropy(small, labels) + m_large * F.cross_entropy(large, labels)', 'return m_large * F.cross_entropy(small, labels) + m_small * F.cross_entropy(large, labels)')]),
    ('algorithms/fedgen.py', 'tests/algorithms/test_fedgen.py golden:FedGen', [('optimiser="adam", lr=self.generator_lr, weight_decay=0.0)', 'optimiser="adam", lr=self.generator_lr)')]),
    ('training.py', 'golden:FedKEMF', [('max(1, round(part * count))', 'max(1, int(part * count))')]),
    ('training.py', 'golden:FedKEMF', [('        for module in modules.values():\n            nn.utils.clip_grad_norm_(module.parameters(), settings.clip_norm)', '        trained = [parameter for module in modules.values() for parameter in module.parameters()]\n        nn.utils.clip_grad_norm_(trained, settings.clip_norm)')]),
    ('federation.py', 'golden:FedAvg', [('inherits = self.protocol.inherit == "first_visit" or (self.protocol.inherit == "first_round" and round == 0)', 'inherits = self.protocol.inherit != "none"')]),
    ('simulation.py', 'golden:Standalone', [('any(value > best for value in measured[-patience:])', 'any(value >= best for value in measured[-patience:])')]),
    ('simulation.py', 'golden:Standalone', [('    apart = federation.protocol.starts == "apart"\n    alike: dict[str | int, list[Client]] = {}\n    for client in clients:\n        alike.setdefault(client.id if apart else client.info.architecture, []).append(client)', '    alike: dict[str | int, list[Client]] = {}\n    for client in clients:\n        alike.setdefault(client.info.architecture, []).append(client)')]),
    ('partition.py', 'tests/test_partition.py tests/test_natural_partitions.py tests/test_border.py tests/lab/test_own_parts.py tests/test_protocols.py tests/test_refusals.py', [('np.floor(np.cumsum(sizes) + 1e-9)).astype(int)', 'np.floor(np.cumsum(sizes))).astype(int)')]),
    ('partition.py', 'tests/test_partition.py tests/test_natural_partitions.py tests/test_border.py tests/lab/test_own_parts.py tests/test_protocols.py tests/test_refusals.py', [('if all(size >= least for size, least in zip(sizes, min_sizes, strict=True)):', 'if sizes[0] >= min_sizes[0]:')]),
    ('models.py', 'tests/test_models.py tests/algorithms/test_contract.py::test_refused tests/algorithms/test_contract.py::test_kind_and_shape tests/test_border.py tests/lab/test_own_parts.py', [('require(min(sample.shape[1:]) >= least, field, architecture, small)', 'require(sample.shape[1] >= least, field, architecture, small)')]),
    ('zoo.py', 'tests/test_zoo.py', [('padding = (ids == 0) & (ids > 0).any(1, keepdim=True)  # a text of nothing but padding is read as it is', 'padding = ids == 0')]),
    ('metrics.py', 'tests/test_metrics.py tests/test_simulation.py tests/test_refusals.py', [('areas.append(((above > 0).double() + (above == 0).double() / 2).mean())', 'areas.append((above >= 0).double().mean())')]),
    ('optimisers.py', 'tests/test_optimisers.py tests/test_refusals.py', [('if key in takes and not {"epochs", key} & set(given)}', 'if key in takes and key not in given}')]),
    ('randomness.py', 'tests/test_border.py tests/lab/test_border_of_runs.py tests/test_training.py tests/test_simulation.py', [('        np.random.set_state(numpy)  # noqa: NPY002\n        random.setstate(python)', '        np.random.set_state(numpy)  # noqa: NPY002')]),
    ('isolated.py', 'tests/test_isolated.py tests/algorithms/test_contract.py::test_in_the_first_round_a_method_and_its_isolated_self_are_equal tests/test_border.py', [('self.method.init_server(replace(first, round=0))', 'self.method.init_server(first)')]),
    ('devices.py', 'tests/test_gpu.py', [('    require(len(set(names)) == len(names), "device", given, "different devices")\n', '')]),
    ('data/readers/har.py', 'tests/data/test_har.py', [('largest = float(np.abs(features).max())', 'largest = float(features.max())')]),
    ('data/readers/ag_news.py', 'tests/data/test_ag_news.py', [('commonest = sorted(counts, key=lambda word: (-counts[word], word))[: VOCABULARY - 2]', 'commonest = [word for word, _ in counts.most_common(VOCABULARY - 2)]')]),
    ('data/readers/pamap2.py', 'tests/data/test_pamap2.py', [('stretch.reshape(count, READINGS // AVERAGED, AVERAGED, len(SIGNALS)).mean(2)', 'stretch.reshape(count, READINGS // AVERAGED, AVERAGED, len(SIGNALS))[:, :, 0]')]),
    ('data/readers/femnist.py', 'tests/data/test_femnist.py', [('* 255).round().astype(np.uint8)', '* 255).astype(np.uint8)')]),
    ('lab/records.py', 'tests/lab/test_store.py tests/test_metrics.py tests/papers/test_recorded.py tests/lab/test_change.py tests/lab/test_damage.py tests/lab/test_bits.py tests/test_refusals.py', [('return state(path)[0] not in ("unfinished", "damaged")', 'return state(path)[0] in ("finished", "diverged", "stale")')]),
    ('lab/files.py', 'tests/lab/test_checkpoint.py tests/lab/test_store.py tests/lab/test_client_files.py tests/lab/test_damage.py tests/lab/test_bits.py tests/test_refusals.py', [('        if len(files) > 1:\n            list(files)[-1].unlink(missing_ok=True)\n', '')]),
    ('lab/spec.py', 'tests/lab/test_checkpoint.py tests/lab/test_keys.py tests/lab/test_change.py tests/lab/test_damage.py tests/lab/test_own_parts.py tests/test_metrics.py tests/test_refusals.py', [('if values["partition"] not in ("dirichlet", "quantity-skew"):', 'if values["partition"] != "dirichlet":')]),
    ('lab/spec.py', 'tests/lab/test_checkpoint.py tests/lab/test_keys.py tests/lab/test_change.py tests/lab/test_damage.py tests/lab/test_own_parts.py tests/test_metrics.py tests/test_refusals.py', [('keep = max(self.spec.keep, other.keep, key=KEEP.index)', 'keep = max(self.spec.keep, other.keep)')]),
    ('lab/checkpoint.py', 'tests/lab/test_checkpoint.py tests/lab/test_client_files.py tests/lab/test_bits.py tests/lab/test_store.py tests/test_refusals.py', [('            federation.last_trained = trained\n', '')]),
    ('lab/clientfiles.py', 'tests/lab/test_client_files.py tests/lab/test_bits.py tests/lab/test_store.py', [('dict(said["files"]), int(said["number"]) + 1', 'dict(said["files"]), int(said["number"])')]),
    ('lab/costs.py', 'tests/lab/test_budgets.py tests/lab/test_costs.py', [('return any(used >= most for used, most in found.values())', 'return any(used > most for used, most in found.values())')]),
    ('lab/estimates.py', 'tests/lab/test_progress.py', [('key=lambda path: path.stat().st_mtime)[-NEWEST:]', 'key=lambda path: path.stat().st_mtime)[:NEWEST]')]),
    ('lab/launch.py', 'tests/papers/test_recorded.py::test_own_parts_that_make_something_else_from_the_same_source_are_another_run tests/lab/test_border_of_runs.py tests/lab/test_own_parts.py tests/lab/test_bits.py tests/lab/test_store.py tests/test_refusals.py', [('waiting.append(item)  # the others first', 'waiting.insert(0, item)')]),
    ('lab/own.py', 'tests/lab/test_own_parts.py', [('sorted(digest(item) for item in value)', '[digest(item) for item in value]')]),
    ('show/intervals.py', 'tests/show/test_intervals.py tests/test_compare.py', [('value(own) if 0 < len(own) == visited else np.nan', 'value(own) if len(own) else np.nan')]),
    ('show/stats.py', 'tests/show/test_intervals.py tests/show/test_stats.py', [(' and len({one.mean > 0 for one in found}) == 1:', ':')]),
    ('papers/differences.py', 'tests/papers/test_differences.py', [('frame.drop_duplicates(["setting", "method", "seed"])', 'frame.drop_duplicates(["setting", "method", "seed"], keep="last")')]),
    ('papers/exhibits.py', 'tests/papers/test_exhibits.py', [('yours = {name: value for name, value in changes.items() if name != "precision" or not about_it}', 'yours = dict(changes)')]),
    ('papers/planned.py', 'tests/papers/test_planned.py', [('known = {*of_record.by_key(), *(done.parent.name for done in waiting)}', 'known = {*of_record.by_key()}')]),
    ('papers/reproduce.py', 'tests/papers/test_exhibits.py tests/papers/test_notebooks.py tests/papers/test_smoke.py', [('return path.with_stem(f"{path.stem}--{asked.variation}") if asked.variation else path', 'return path')]),
    ('cli/store.py', 'tests/lab/test_store.py tests/lab/test_change.py', [('max(file.lstat().st_mtime for file in path.iterdir())', '(path / "spec.json").lstat().st_mtime')]),
    ('cli/run.py', 'tests/lab/test_progress.py tests/papers/test_readme.py', [('costs.kilobytes(words / record.rounds["selected"].sum())', 'costs.kilobytes(words / spec.num_clients / len(trained))')]),
    ('../packages/flower/fedlib_flower/wire.py', 'packages/flower/tests/test_wire.py packages/flower/tests/test_over_bytes.py packages/flower/tests/test_flower.py', [(' and lengths.setdefault(wanted.name, length) == length', '')]),
    ('../packages/flower/fedlib_flower/server.py', 'packages/flower/tests/test_flower.py packages/flower/tests/test_hostile.py', [('if len(said) >= 2 and len(said) == sum(', 'if said and len(said) == sum(')]),
]  # fmt: skip


def tests_of(row: str) -> list[str]:
    """What pytest is told."""
    cases = "tests/test_golden.py::test_numbers_stay_as_they_are_or_have_a_new_version[{} fp32]"
    return [cases.format(word[7:]) if word.startswith("golden:") else word for word in row.split()]


def check() -> list[str]:
    """What is wrong with the rows: a text that does not stand once in its file, a test that is not there."""
    wrong = []
    for file, tests, changes in FAULTS:
        source = (ROOT / "fedlib" / file).read_text()
        wrong += [f"{file}: {source.count(old)} times, not once: {old!r}" for old, new in changes if source.count(old) != 1 or old == new]
        wrong += [f"{file}: no {test}" for test in tests_of(tests) if not (ROOT / test.partition("::")[0]).exists()]
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
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return False
    finally:
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
        for name in COPIED:
            copied = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
            copied(ROOT / name, copy / name)
        with open(folder / f"found-{number}", "w") as lines:
            for file, tests, change in work:
                began = time.monotonic()
                passed = passes(copy, file, tests, change)
                print(int(passed), int(change is None), file=lines, flush=True)
                if passed == (change is None):
                    with NOTES.open("a") as notes:
                        print(json.dumps({"file": file, "tests": tests, "state": state(file, tests), "change": change}), file=notes)
                if change:
                    said = f"{'SURVIVED' if passed else 'found'} {change!r}"
                else:
                    said = "passes as it is" if passed else f"FAILS AS IT IS: {tests}"
                print(f"{file}: {said} ({time.monotonic() - began:.0f} s)", flush=True)
    finally:
        os._exit(0)


def main(words: list[str]) -> int:
    if wrong := check():
        print(*wrong, sep="\n")
        return 1
    rows = [row for row in FAULTS if not words or any(word in row[0] for word in words)]
    work: list[tuple[str, str, Change | None]] = [(file, tests, None) for file, tests, _ in rows]
    work += [(file, tests, change) for file, tests, changes in rows for change in changes]
    total, before = len(work) - len(rows), noted()
    every = len(work)
    work = [(file, tests, change) for file, tests, change in work if (file, tests, state(file, tests), change) not in before]
    if len(work) < every:
        print(f"{every - len(work)} of {every} as noted before", flush=True)
    for module in ("matplotlib.pyplot", "numpy", "pandas", "safetensors.torch", "scipy.stats", "torch"):
        import_module(module)  # once, and not in every fork
    began, workers = time.monotonic(), min(2, os.cpu_count() or 1)
    with tempfile.TemporaryDirectory() as folder:
        for child in [started(Path(folder), work[number::workers], number) for number in range(workers)]:
            os.waitpid(child, 0)
        lines = [line.split() for path in Path(folder).glob("found-*") for line in path.read_text().splitlines()]
    if len(lines) != len(work):
        print(f"{len(work) - len(lines)} of {len(work)} have not been tried")
        return 1
    if any(passed == "0" for passed, plain in lines if plain == "1"):
        print("a test fails without any fault: mend it first")
        return 1
    survived = sum(line == ["1", "0"] for line in lines)
    found, minutes = total - survived, (time.monotonic() - began) / 60
    print(f"{total} faults: {found} found, {survived} survived ({found / total:.1%} found), {minutes:.0f} minutes")
    return 0 if found >= LEAST * total else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
