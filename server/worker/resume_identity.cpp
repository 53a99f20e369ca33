#include "server/worker/resume_identity.hpp"

#include <algorithm>
#include <bit>
#include <boost/json/value.hpp>
#include <cstddef>

#include "api/job_spec_json.hpp"
#include "api/url_queries.hpp"
#include "base/cores.hpp"
#include "base/json_members.hpp"
#include "base/json_text.hpp"
#include "pipeline/core/automatic_batch.hpp"
#include "pipeline/core/effective_overflow.hpp"
#include "pipeline/core/teacher_name.hpp"
#include "pipeline/teacher/probe/teacher_fingerprint.hpp"
#include "server/worker/machine/arithmetic.hpp"

namespace distilld {

namespace json = boost::json;

namespace {

constexpr const char* kNotBitForBit = ": weights will not equal those of an uninterrupted run bit for bit";
constexpr const char* kByLength = "by length";
constexpr const char* kPlanned = "planned_batch_size";
constexpr const char* kEndsEpochs = "ends_epochs";
constexpr std::size_t kMaxDepth = 64;  // a spec in an object

/// Parses a checkpoint's identity; nullopt if make_run_identity() did not write it.
std::optional<json::value> read_identity(const std::string& identity) {
    auto then = parse_json_text(identity, kMaxDepth);
    if (!then || !then->is_object() || !then->get_object().contains("spec")) {
        return std::nullopt;
    }
    return *std::move(then);
}

const json::value* find(const json::value& document, std::string_view pointer) {
    boost::system::error_code missing;
    return document.find_pointer(pointer, missing);
}

constexpr const char* kNothing = "nothing";

/// The field's value in a written spec. A missing field has its default, since a checkpoint may be older than a field;
/// but in a section that the spec lacks, a field has no value.
std::string value_in(const json::value& spec, const api::SpecField& field) {
    if (const auto* value = find(spec, field.pointer)) {
        return to_text(*value);
    }
    const auto initial = field.kind.initial();
    return initial && find(spec, field.section()) != nullptr ? to_text(*initial) : kNothing;
}

std::string difference(const api::SpecField& field, const std::string& was, const std::string& is) {
    return std::string(field.pointer) + ": is " + (is == kNothing ? "not set" : is) + ", but the checkpoint was made " +
           (was == kNothing ? "without it" : "with " + was);
}

/// What the teacher of a written spec sent: by its field, or by top_k if the spec is older than the field.
std::string targets_then(const json::value& spec) {
    const auto* targets = find(spec, "/teacher/targets");
    if (targets != nullptr && *targets != json::value("auto")) {
        return to_text(*targets);
    }
    const auto* top_k = find(spec, "/teacher/top_k");
    const bool all_tokens = top_k == nullptr || *top_k == json::value(0);
    return all_tokens ? "\"logits\"" : "\"topk\"";
}

/// A written spec reduced to the teacher of this name; null if there is none.
json::value alone(const json::value& spec, const std::string& name) {
    const auto* teacher = find(spec, teacher_pointer(name));
    return teacher != nullptr ? json::value({{"teacher", *teacher}}) : json::value(nullptr);
}

std::vector<std::string> names_in(const json::value& spec, std::string_view section) {
    std::vector<std::string> names;
    const auto* members = find(spec, section);
    const auto* object = members != nullptr ? members->if_object() : nullptr;
    for (std::size_t i = 0; object != nullptr && i < object->size(); ++i) {
        names.emplace_back((object->begin() + static_cast<std::ptrdiff_t>(i))->key());
    }
    std::ranges::sort(names);
    return names;
}

std::uint32_t number_at(const json::value& document, std::string_view pointer) {
    const auto* value = find(document, pointer);
    const auto number =
        value != nullptr && value->is_number() ? JsonMembers::whole_number<std::uint32_t>(*value) : std::nullopt;
    return number.value_or(0);
}

std::uint32_t planned_rows(const json::value& identity) {
    const std::uint32_t planned = number_at(identity, "/" + std::string(kPlanned));
    return planned != 0 ? planned : number_at(identity, "/spec/training/batch_size");
}

/// Whether a written spec has the run's steps, cut into smaller or larger micro-batches. A run that ran out of memory
/// before its first checkpoint knows only the smaller ones.
bool cuts_the_same_steps(const json::value& identity, const json::value& now) {
    const std::uint64_t rows_then = number_at(identity, "/spec/training/batch_size");
    const std::uint64_t rows = number_at(now, "/training/batch_size");
    if (rows_then == 0 || rows == 0 ||
        rows_then * number_at(identity, "/spec/training/micro_batches") !=
            rows * number_at(now, "/training/micro_batches")) {
        return false;
    }
    const auto [smaller, larger] = std::minmax({std::uint64_t{planned_rows(identity)}, rows});
    return larger % smaller == 0 && std::has_single_bit(larger / smaller);
}

/// Before the field existed, tokens beyond the row were dropped.
Overflow overflow_then(const json::value& identity) {
    const auto* said = find(identity, "/spec/dataset/overflow");
    return said != nullptr && said->is_string()
               ? value_of(kOverflowNames, said->get_string()).value_or(Overflow::truncate)
               : Overflow::truncate;
}

bool splits_steps(const api::SpecField& field) {
    return field.pointer == "/training/batch_size" || field.pointer == "/training/micro_batches";
}

/// Whether the last bits of weights are the same with another value of the field. Numbers of replicas from 2 on are
/// alike; a run older than the field had none, and keeps to that.
bool sums_alike(const api::SpecField& field, const json::value& then, const std::string& was, const std::string& is) {
    const bool same_replicas = find(then, field.pointer) == nullptr || (was != "1" && is != "1");
    return was == is || (field.pointer == "/training/replicas" && same_replicas);
}

Result<void> check_field(const api::SpecField& field, const json::value& then, const json::value& now) {
    const auto is = value_in(now, field);
    // If the teacher was asked what it offers, a spec may also name its choice.
    const bool names_targets =
        field.pointer == "/teacher/targets" && is != "\"auto\"" && is != "nothing" && find(then, "/teacher") != nullptr;
    const auto was = names_targets ? targets_then(then) : value_in(then, field);
    const bool not_told = field.pointer == "/student/dtype" && was == "\"auto\"";
    if (field.decides_weights == api::DecidesWeights::yes && was != is && !not_told) {
        return invalid_input(difference(field, was, is) + "; weights depend on it, so the run cannot be resumed");
    }
    return {};
}

/// A teacher's name decides its rows; the fields that matter for a single teacher decide its answers.
Result<void> check_several(const api::SpecSection& section, const json::value& then, const json::value& now,
                           const api::SpecTable& table) {
    const auto names = names_in(now, section.pointer);
    if (names != names_in(then, section.pointer)) {
        return invalid_input(std::string(section.pointer) +
                             ": the checkpoint was made with others; rows go to them by name, so the run cannot be "
                             "resumed");
    }
    for (const auto& name : names) {
        const json::value was = alone(then, name);
        const json::value is = alone(now, name);
        for (const auto* field : table.fields_of(section.members_as)) {
            if (Result<void> same = check_field(*field, was, is); !same) {
                return invalid_input(of_named_teacher(same.error().message, name));
            }
        }
    }
    return {};
}

void adopt_batch(const json::value& identity, TrainingSpec& training) {
    // The chosen size; micro_batches in the spec refers to it.
    if (const std::uint32_t rows = planned_rows(identity); training.batch_size_auto && rows != 0) {
        training.batch_size = rows;
        training.batch_size_auto = false;
    }
    // As many as make up the same steps.
    const std::uint64_t step = std::uint64_t{number_at(identity, "/spec/training/batch_size")} *
                               number_at(identity, "/spec/training/micro_batches");
    if (training.micro_batches_auto && !training.batch_size_auto && step != 0) {
        training.micro_batches =
            static_cast<std::uint32_t>(std::clamp<std::uint64_t>(step / training.batch_size, 1, 65536));
        training.micro_batches_auto = false;
    }
}

/// Any number from 2 on gives the same bits. Checkpoints older than the field are of runs without replicas.
void adopt_replicas(const json::value& identity, TrainingSpec& training) {
    const std::uint32_t said = number_at(identity, "/spec/training/replicas");
    training.replicas = std::clamp(said, 1U, std::clamp(core_count(), 2U, kMaxReplicas));
    training.replicas_auto = false;
}

/// A checkpoint older than the chosen dtype says "auto": the model's stays open.
void adopt_dtype(const json::value& identity, ModelArithmetic& model) {
    const auto* said = find(identity, "/spec" + model.pointer);
    for (const auto& choice : kDtypeNames) {
        if (said != nullptr && *said == json::value(choice.text)) {
            *model.dtype = choice.value;
        }
    }
}

void adopt_targets(const json::value& spec_then, TeacherSpec& teacher) {
    const std::string then = targets_then(spec_then);
    for (const auto& choice : kTargetsChoiceNames) {
        if (then == '"' + std::string(choice.text) + '"') {
            teacher.targets = choice.value;
        }
    }
}

}  // namespace

std::string make_run_identity(const JobSpec& spec, const std::string& dataset_hash, const api::SpecTable& table,
                              const RunEnvironment& environment) {
    json::object identity;
    identity["spec"] = api::to_json_object(spec, table);
    identity["dataset_sha256"] = dataset_hash;
    if (!environment.libtorch.empty()) {
        identity["libtorch"] = environment.libtorch;
    }
    if (environment.rows_by_length) {
        identity["row_order"] = kByLength;
    }
    if (environment.planned_batch_size != 0 && environment.planned_batch_size != spec.training.batch_size) {
        identity[kPlanned] = environment.planned_batch_size;
    }
    if (environment.ends_epochs) {
        identity[kEndsEpochs] = true;
    }
    json::value document(std::move(identity));
    json::set_pointer_options in_objects;
    in_objects.create_arrays = false;  // a name may be a number
    for (const auto& [name, teacher] : environment.teachers) {
        if (!name.empty() || !teacher.fingerprint.empty()) {
            const json::value mark{{"fingerprint", teacher.fingerprint}, {"deterministic", teacher.deterministic}};
            document.set_at_pointer(teacher_pointer(name), mark, in_objects);
        }
    }
    api::hide_url_queries(document);  // no weight depends on a URL
    return to_text(document);
}

Result<void> check_run_identity(const std::string& identity, const JobSpec& spec, const std::string& dataset_hash,
                                const api::SpecTable& table) {
    const auto then = read_identity(identity);
    if (!then) {
        return invalid_input("the checkpoint does not record its spec");
    }
    const auto* hash_then = find(*then, "/dataset_sha256");
    if (hash_then == nullptr || *hash_then != json::value(dataset_hash)) {
        if (const Overflow was = overflow_then(*then);
            spec.dataset.packing != Packing::joined && effective_overflow(spec.dataset) != was) {
            return invalid_input(std::string("/dataset/overflow: is ") +
                                 name_of(kOverflowNames, effective_overflow(spec.dataset)) +
                                 ", but the checkpoint was made with " + name_of(kOverflowNames, was) +
                                 "; rows depend on it, so the run cannot be resumed");
        }
        return invalid_input(
            "/dataset/train: not the dataset that the checkpoint was trained on (SHA-256 of its rows " + dataset_hash +
            ", in the checkpoint " + (hash_then == nullptr ? "nothing" : to_text(*hash_then)) + ")");
    }
    const json::value now = api::to_json_object(spec, table);
    const json::value& spec_then = then->get_object().at("spec");
    const bool same_steps = cuts_the_same_steps(*then, now);
    for (const auto& field : table.fields) {
        if (same_steps && splits_steps(field)) {
            continue;
        }
        if (Result<void> same = check_field(field, spec_then, now); !same) {
            return same;
        }
    }
    for (const auto& section : table.sections) {
        if (section.members_as.empty()) {
            continue;
        }
        if (Result<void> same = check_several(section, spec_then, now, table); !same) {
            return same;
        }
    }
    return {};
}

Result<void> check_first_weights(const std::string& identity, const JobSpec& spec, const api::SpecTable& table) {
    const auto then = read_identity(identity);
    if (!then) {
        return invalid_input("the checkpoint does not record its spec");
    }
    const json::value now = api::to_json_object(spec, table);
    const json::value& spec_then = then->get_object().at("spec");
    for (const auto& field : table.fields) {
        const auto was = value_in(spec_then, field);
        const auto is = value_in(now, field);
        if (field.decides_weights == api::DecidesWeights::first_weights && was != is) {
            return invalid_input(difference(field, was, is) +
                                 "; it can be resumed under that name, or with distilld run --resume");
        }
    }
    return {};
}

std::string dataset_of(const std::string& identity) {
    const auto then = read_identity(identity);
    const auto* hash = then ? find(*then, "/dataset_sha256") : nullptr;
    return hash != nullptr && hash->is_string() ? std::string(hash->get_string()) : std::string();
}

bool rows_were_by_length(const std::string& identity) {
    const auto then = read_identity(identity);
    const auto* order = then ? find(*then, "/row_order") : nullptr;
    return order != nullptr && *order == json::value(kByLength);
}

bool ended_epochs(const std::string& identity) {
    const auto then = read_identity(identity);
    const auto* ended = then ? find(*then, "/" + std::string(kEndsEpochs)) : nullptr;
    return ended != nullptr && *ended == json::value(true);
}

std::uint32_t planned_batch_size(const std::string& identity) {
    const auto then = read_identity(identity);
    return then ? planned_rows(*then) : 0;
}

std::vector<std::string> last_bits_warnings(const std::string& identity, const JobSpec& spec,
                                            const api::SpecTable& table, const RunEnvironment& environment) {
    std::vector<std::string> warnings;
    const auto then = read_identity(identity);
    if (!then) {
        return warnings;
    }
    const json::value now = api::to_json_object(spec, table);
    const json::value& spec_then = then->get_object().at("spec");
    for (const auto& field : table.fields) {
        const auto was = value_in(spec_then, field);
        const auto is = value_in(now, field);
        // One line is enough for micro-batches; micro_batches follow from it.
        const bool split_otherwise =
            field.pointer == "/training/batch_size" && is != "\"auto\"" && cuts_the_same_steps(*then, now);
        const bool last_bits =
            field.decides_weights == api::DecidesWeights::last_bits && !sums_alike(field, spec_then, was, is);
        if (last_bits || (split_otherwise && was != is)) {
            warnings.push_back(difference(field, was, is) + kNotBitForBit);
        }
    }
    const auto* libtorch = find(*then, "/libtorch");
    if (libtorch != nullptr && libtorch->is_string() && *libtorch != json::value(environment.libtorch)) {
        warnings.push_back("this is libtorch " + environment.libtorch + ", but the checkpoint was made with " +
                           std::string(libtorch->get_string()) + kNotBitForBit);
    }
    return warnings;
}

namespace {

/// `then`: the teacher in the checkpoint, or null; `spec`: the present teacher's.
Result<std::string> check_one_teacher(const json::value* then, const TeacherMark& now, const TeacherSpec& spec,
                                      bool overwrite) {
    const auto* was = then != nullptr ? find(*then, "/fingerprint") : nullptr;
    if (was == nullptr || !was->is_string() || same_teacher(std::string(was->get_string()), now.fingerprint)) {
        return std::string();
    }
    const std::string difference = std::string(!spec.module.empty()      ? "/teacher/module"
                                               : !spec.model_dir.empty() ? "/teacher/model_dir"
                                                                         : "/teacher/endpoints") +
                                   ": the teacher is not the one that the checkpoint was made with: its answers differ";
    const auto* deterministic = find(*then, "/deterministic");
    const bool was_certain = deterministic != nullptr && *deterministic == json::value(true);
    if (was_certain && now.deterministic && !overwrite) {
        return invalid_input(difference + "; use that teacher, or set \"overwrite\": true to continue with this one");
    }
    return difference;
}

}  // namespace

Result<std::string> check_teacher(const std::string& identity, const JobSpec& spec, const RunEnvironment& environment) {
    const auto then = read_identity(identity);
    if (!then) {
        return std::string();
    }
    std::string told;
    for (const auto& [name, mark] : environment.teachers) {
        const Result<std::string> of_one =
            check_one_teacher(find(*then, teacher_pointer(name)), mark, spec.teachers.at(name), spec.overwrite);
        if (!of_one) {
            return invalid_input(of_named_teacher(of_one.error().message, name));
        }
        if (!of_one->empty()) {
            told += (told.empty() ? "" : "; ") + of_named_teacher(*of_one, name);
        }
    }
    return told;
}

void adopt_decisions(const std::string& identity, JobSpec& spec) {
    const auto then = read_identity(identity);
    if (!then) {
        return;
    }
    for (ModelArithmetic& model : arithmetics_of(spec)) {
        if (model.open()) {
            adopt_dtype(*then, model);
        }
    }
    if (spec.training.batch_size_auto || spec.training.micro_batches_auto) {
        adopt_batch(*then, spec.training);
    }
    if (spec.training.replicas_auto) {
        adopt_replicas(*then, spec.training);
    }
    if (spec.dataset.overflow == Overflow::automatic && spec.dataset.packing != Packing::joined) {
        spec.dataset.overflow = overflow_then(*then);
    }
    for (auto& [name, teacher] : spec.teachers) {
        if (teacher.targets == TargetsChoice::automatic) {
            adopt_targets(alone(then->at("spec"), name), teacher);
        }
    }
}

}  // namespace distilld
