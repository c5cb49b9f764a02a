package policy

import (
	"slices"
	"strings"
)

// CheckRows tells where the document does not fit the endpoints: selectors that
// name what is not there, and knobs that an endpoint named exactly does not
// have. [Compile] refuses such a document with the first of them; tools that
// report every mistake ask here.
func (d *Document) CheckRows(rows []Row) []*ConfigError {
	var errs []*ConfigError
	for _, s := range d.selectors {
		where := member("policy.endpoints", s.selector)
		switch kind, name := selectorKind(s.selector); kind {
		case groupKind:
			if !slices.Contains(Groups, name) {
				errs = append(errs, configErrorf(s.at, where, "unknown group '%s'%s", shorten(name), didYouMean(name, Groups)))
			}
		case exactKind:
			errs = append(errs, checkExact(s, name, where, rows)...)
		}
	}
	return errs
}

func checkExact(s selectorSpec, name, where string, rows []Row) []*ConfigError {
	row := endpointNamed(rows, name)
	if row == nil {
		if absentButKnown(name) {
			return nil
		}
		return []*ConfigError{configErrorf(s.at, where, "unknown endpoint '%s'%s", shorten(name), didYouMean(name, knownIDs(rows)))}
	}
	var errs []*ConfigError
	check := func(section string, knobs []knob, takes func(string) bool) {
		for _, k := range knobs {
			if !takes(k.name) {
				errs = append(errs, configErrorf(k.at, where+"."+section+"."+k.name, "not applicable to endpoint '%s'", name))
			}
		}
	}
	check("paths", s.rule.paths, row.takesPath)
	check("limits", s.rule.limits, row.takesLimit)
	check("params", s.rule.params, row.takesParam)
	return errs
}

func endpointNamed(rows []Row, name string) *Row {
	for i := range rows {
		if rows[i].As == "" && rows[i].Name == name {
			return &rows[i]
		}
	}
	return nil
}

// absentButKnown tells whether an id that has no endpoint here is one that
// existing documents name with reason.
func absentButKnown(name string) bool {
	return strings.HasPrefix(name, "agents_") || slices.Contains(publishedIDs, name)
}

func knownIDs(rows []Row) []string {
	ids := slices.Clone(publishedIDs)
	for _, row := range rows {
		if row.As == "" {
			ids = append(ids, row.Name)
		}
	}
	return ids
}
