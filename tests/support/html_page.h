// Checks that a report's page is well-formed and self-contained.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace mantissa {

/// The fault of the page; empty if there is none. Every element, except the few void ones, must be closed by
/// its own tag; attributes may be in single quotes or none; nothing may be fetched or run.
inline std::string fault_of_page(const std::string& page) {
    if (page.rfind("<!doctype html>\n", 0) != 0) return "it does not begin with its doctype";
    for (const char* fetch : {"src=", "href=", "url(", "@import", "http:", "https:"})
        if (page.find(fetch) != std::string::npos) return std::string("it fetches: ") + fetch;
    if (page.find("<script") != std::string::npos) return "it runs a script";
    std::vector<std::string> open;
    for (std::size_t at = page.find('<', 1); at != std::string::npos; at = page.find('<', at + 1)) {
        const std::size_t end = page.find('>', at);
        if (end == std::string::npos) return "a tag without its end";
        const std::string tag = page.substr(at + 1, end - at - 1);
        const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
        if (name.find_first_not_of("/abcdefghijklmnopqrstuvwxyz0123456789") != std::string::npos ||
            name.empty())
            return "a bare < at '" + page.substr(at + 1, 6) + "'";
        if (std::count(tag.begin(), tag.end(), '\'') % 2 != 0) return "a quote is open in <" + tag + ">";
        if (name == "meta" || tag.back() == '/') continue;
        if (name[0] != '/') {
            open.push_back(name);
            continue;
        }
        if (open.empty() || open.back() != name.substr(1))
            return "<" + name + "> closes " + (open.empty() ? "nothing" : "<" + open.back() + ">");
        open.pop_back();
    }
    return open.empty() ? "" : "<" + open.back() + "> is never closed";
}

}  // namespace mantissa
