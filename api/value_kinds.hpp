#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/violation.hpp"

/// Kinds of values: which values a field takes, how they are read, written and described. field_kinds.hpp binds them to
/// members. Values come and go as JSON, which also has what TOML and command lines have for them. Immutable, any
/// thread.
namespace distilld::api {

/// Notes what is wrong with the value of one field.
struct FieldReport {
    std::string_view pointer;
    std::vector<Violation>& violations;
    bool hides_values = false;  ///< messages say what is wanted and never quote the value, which may be a secret

    void violate(std::string code, std::string detail) const;
    void wrong_type(std::string_view wanted, const boost::json::value& got) const;
};

/// How words of a command line or of an environment variable are understood.
enum class FieldShape { text, boolean, list_of_texts, json };

/// What a job does with a file or folder that its spec names: which other jobs may use it meanwhile follows from it
/// (server/jobs/path_claims.hpp).
enum class PathUse {
    reads,
    shares,  ///< writes beside other jobs that have agreed on how, or reads: the store of a teacher's answers
    writes,  ///< and nobody else does
};

class ValueKind {
  public:
    virtual ~ValueKind() = default;

    /// The value in the one form in which it is kept: 8388608 for "8MiB". Nothing when it is not good; the reason is
    /// reported.
    [[nodiscard]] virtual std::optional<boost::json::value> read(const boost::json::value& value,
                                                                 const FieldReport& report) const = 0;
    /// A kept value in the form in which read() takes it.
    [[nodiscard]] virtual boost::json::value write(boost::json::value kept) const { return kept; }
    /// The same as people write it: "8MiB".
    [[nodiscard]] virtual boost::json::value show(boost::json::value kept) const { return write(std::move(kept)); }

    /// JSON schema (2020-12, as OpenAPI 3.1 has it) of the value, without its default.
    [[nodiscard]] virtual boost::json::object schema() const = 0;
    /// The values in a few words of Markdown: "1–65536".
    [[nodiscard]] virtual std::string values() const = 0;
    /// The same without Markdown: "1 to 65536".
    [[nodiscard]] virtual std::string plain_values() const { return values(); }
    /// What must be given: "a whole number from 1 to 65536".
    [[nodiscard]] virtual std::string wanted() const { return plain_values(); }
    /// What stands for the value in the help of a flag: "N", "DIR", "{debug,info}".
    [[nodiscard]] virtual std::string type_name() const { return "VALUE"; }
    [[nodiscard]] virtual FieldShape shape() const { return FieldShape::json; }
    /// Of a kind whose texts are files or folders.
    [[nodiscard]] virtual std::optional<PathUse> path_use() const { return std::nullopt; }

    /// The value that words stand for. Whether it is a good one, read() says.
    [[nodiscard]] boost::json::value value_of(const std::vector<std::string>& words) const;

  protected:
    /// `detail` may quote the value; where values are hidden, wanted() is said in its place.
    std::nullopt_t refuse(const FieldReport& report, const char* code, const std::string& detail,
                          const std::string& hint = "") const;
};

using ValueKindPtr = std::shared_ptr<const ValueKind>;

inline constexpr std::size_t kMaxPathBytes = 4096;

/// A form that a text must have. The text is not quoted in the complaint, as it may be a secret.
struct TextForm {
    /// Regular expression of ECMAScript for the whole text; what `check` checks, it only describes. May be null.
    const char* pattern = nullptr;
    const char* values = "text";      ///< in words, for the documentation
    const char* complaint = nullptr;  ///< what is said of a text that does not match
    const char* format = nullptr;     ///< as JSON schema has it; may be null
    /// What is wrong with a text; empty: it is good. May be null.
    std::string (*check)(const std::string& text) = nullptr;
};

struct TextRange {
    std::size_t max_bytes = kMaxPathBytes;
    bool may_be_empty = false;       ///< "" stands for "none"
    const TextForm* form = nullptr;  ///< of the texts that are not empty
    bool may_break_lines = false;    ///< line feeds and tabs are no control characters
    const char* type_name = "TEXT";
    std::optional<PathUse> use = std::nullopt;  ///< of files and folders
    const char* what = nullptr;                 ///< which file or folder
};

struct ListRange {
    TextRange text = {};  ///< of each
    std::size_t max_count = 1000;
    std::size_t min_count = 0;
    const char* if_too_few = "must not be empty";
    bool unique = false;
    bool one_alone = false;  ///< a single text may stand without its list, and is written so
};

struct IntegerRange {
    std::int64_t min = 0;
    std::uint64_t max = std::numeric_limits<std::uint64_t>::max();
};

enum class Ends { closed, open_min, open_max };  ///< which end of a range is outside of it

struct NumberRange {
    double min = 0;
    double max = 1;
    Ends ends = Ends::closed;
};

[[nodiscard]] ValueKindPtr text_kind(TextRange range);
[[nodiscard]] ValueKindPtr list_kind(ListRange range);
[[nodiscard]] ValueKindPtr integer_kind(IntegerRange range);
/// A whole number, or "auto".
[[nodiscard]] ValueKindPtr integer_or_auto_kind(IntegerRange range);
/// Bytes: a whole number, or a text with a unit ("8MiB").
[[nodiscard]] ValueKindPtr size_kind(IntegerRange range);
/// Kept in milliseconds: a number of seconds, or a text with a unit ("500ms", "5m").
[[nodiscard]] ValueKindPtr duration_kind(std::chrono::milliseconds min, std::chrono::milliseconds max);
[[nodiscard]] ValueKindPtr number_kind(NumberRange range);
/// Kept in seconds, in the forms of duration_kind().
[[nodiscard]] ValueKindPtr seconds_kind(NumberRange range);
[[nodiscard]] ValueKindPtr boolean_kind();
[[nodiscard]] ValueKindPtr choice_kind(std::vector<std::string> names);
/// True and false stand for two of the names.
[[nodiscard]] ValueKindPtr choice_or_boolean_kind(std::vector<std::string> names, std::string when_true,
                                                  std::string when_false);
/// Any object.
[[nodiscard]] ValueKindPtr object_kind();

/// http and https, without user name, password and fragment.
extern const TextForm kUrlForm;

}  // namespace distilld::api
