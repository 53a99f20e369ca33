// What a program of eval.command prints: whatever its author likes.
#include <cmath>

#include "server/worker/eval/printed_figures.hpp"
#include "tests/fuzz/targets.hpp"

namespace distilld::fuzz {

void read_printed(std::string_view input) {
    const auto figures = read_figures(input);
    if (!accepted(figures)) {
        return;
    }
    demand(!figures->empty() && figures->size() <= kMaxFigures, "there are some figures, and not too many");
    for (const auto& [name, value] : *figures) {
        demand(!name.empty() && name.size() <= kMaxFigureName, "a name is short");
        demand(name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-/") ==
                   std::string::npos,
               "a name has plain characters");
        demand(name.front() != '/' && name.back() != '/' && name.find("//") == std::string::npos,
               "a name has whole parts");
        demand(std::isfinite(value), "a figure is finite");
    }
}

std::vector<std::string> printed_seeds() {
    return {"{\"a\": 1}\n", "words\n{\"a\": {\"b,c\": 0.5, \"..\": 1e300}, \"d\": [1], \"e\": null}\n",
            "{\n  \"a\": -1\n}\n", "{\"a\": NaN}", "{\"a\": 1e999}"};
}

}  // namespace distilld::fuzz
