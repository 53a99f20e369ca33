#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "api/field_kinds.hpp"
#include "pipeline/core/job_spec.hpp"

/// The fields of a job spec, each described once. The parser, the writer, the suggestions for misspelt names, the paths
/// that are made absolute, the resume identity, the tables of docs/job-spec.md, the JobSpec schema of api/openapi.yaml
/// and the flags of the command line go by this table. A new field is a member of pipeline/core/job_spec.hpp and a row
/// here; what it has to do with other fields is a rule of api/spec_rules.cpp.
namespace distilld::api {

template <>
struct SectionOf<StudentSpec> : SectionAt<&JobSpec::student> {};
template <>
struct SectionOf<TeacherSpec> : SectionAt<&JobSpec::teacher> {};
template <>
struct SectionOf<DatasetSpec> : SectionAt<&JobSpec::dataset> {};
template <>
struct SectionOf<TrainingSpec> : SectionAt<&JobSpec::training> {};
template <>
struct SectionOf<EvalSpec> : SectionAt<&JobSpec::eval> {};
template <>
struct SectionOf<CheckpointSpec> : SectionAt<&JobSpec::checkpoint> {};
template <>
struct SectionOf<MetricsSpec> : SectionAt<&JobSpec::metrics> {};
template <>
struct SectionOf<LoraSpec> {
    using Root = JobSpec;
    static auto* in(auto& spec) { return spec.student.lora ? &*spec.student.lora : nullptr; }
};

/// Whether a run that goes on from a checkpoint may have another value. There is no default: every row says it.
class DecidesWeights {
  public:
    enum Answer {
        no,             ///< it may: weights do not depend on it, or are meant to go on under the new value
        first_weights,  ///< it may when a person says so: a checkpoint holds what has become of the first weights
        last_bits,  ///< it may, with a warning: sums are formed in another order, so the last bits of weights differ
        yes,        ///< it may not
    };
    constexpr DecidesWeights(Answer answer) noexcept : answer_(answer) {}
    [[nodiscard]] constexpr bool operator==(Answer answer) const noexcept { return answer_ == answer; }

  private:
    Answer answer_;
};

/// What a path has to be before a job begins.
enum class Named { nothing, file, folder };

/// Which jobs a required field or section is required of.
enum class NeededBy { all, training };

struct SpecField {
    std::string_view pointer;        ///< "/name", "/training/seed": a field of the document or of a section
    FieldKind<JobSpec> kind;         ///< member, values, range; the default is that of the member
    DecidesWeights decides_weights;  ///< no default
    std::string_view help;           ///< one line of Markdown
    std::string_view required = {};  ///< what has to be given; empty = may be left out
    /// Follows the default in the documentation, or stands for it where it is "none": "= all cores".
    std::string_view default_note = {};
    bool default_depends = false;  ///< on other fields, by a rule: the schema names none
    NeededBy needed_by = NeededBy::all;
    Named there = Named::nothing;  ///< of a path that is read; a file may be a pattern (glob) that has matches
    /// What other programs call it. They are refused as every other name that is not known, and this one is suggested.
    std::vector<std::string_view> also_known_as = {};

    /// "/training" of "/training/seed"; empty for a field of the document.
    [[nodiscard]] std::string_view section() const { return pointer.substr(0, pointer.rfind('/')); }
    [[nodiscard]] std::string_view name() const { return pointer.substr(pointer.rfind('/') + 1); }
};

struct SpecSection {
    std::string_view pointer;        ///< "/training"; "/student/lora" stands within "/student"
    std::string_view required = {};  ///< what has to be given; empty = may be left out
    /// Makes the section where it stands in the document; none for one that every JobSpec has.
    void (*open)(JobSpec&) = nullptr;
    bool (*present)(const JobSpec&) = nullptr;  ///< none: always
    /// Names of fields of which exactly one must be given (a rule of spec_rules.cpp says so); else empty.
    std::vector<std::string_view> exactly_one = {};
    NeededBy needed_by = NeededBy::all;
    /// "/teacher" of "/teachers": its members are objects with the fields of that section, each under a name of its own
    /// (it has no rows). Empty: an object with fields.
    std::string_view members_as = {};
    std::string_view help = {};  ///< of a section that may be left out: one line of Markdown; may be empty

    [[nodiscard]] std::string_view name() const { return pointer.substr(pointer.rfind('/') + 1); }
};

struct SpecTable {
    std::vector<SpecSection> sections;
    std::vector<SpecField> fields;  ///< in the order of violations and documentation

    /// Null for a pointer without a row.
    [[nodiscard]] const SpecField* field(std::string_view pointer) const;
    /// The field that others call so; null where none is.
    [[nodiscard]] const SpecField* known_as(std::string_view name) const;
    /// The section must have a row, which an exception says otherwise.
    [[nodiscard]] const SpecSection& section(std::string_view pointer) const;
    /// Of one section, "" = of the document itself, in order.
    [[nodiscard]] std::vector<const SpecField*> fields_of(std::string_view section) const;
    /// What stands in a section, "" = in the document: fields of its own ("/name"), and sections ("/student") at the
    /// place of their first field, one whose members are as that section behind it. In order.
    [[nodiscard]] std::vector<std::string_view> members_of(std::string_view section) const;
};

[[nodiscard]] const SpecTable& spec_table();

}  // namespace distilld::api
