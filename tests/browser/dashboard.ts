// What a dashboard of ours may be, as Grafana's own types say: those of the dashboard, and those of
// each kind of panel, which the dashboard's leave open. Whoever writes JSON writes the values of an
// enumeration and leaves out options that have defaults, and is told of a name nobody knows; so the
// types here are stricter than Grafana's in the last point alone. They say nothing of what a
// dashboard should show.

import type * as grafana from "@grafana/schema";
import type * as barchart from "@grafana/schema/dist/esm/raw/composable/barchart/panelcfg/x/BarChartPanelCfg_types.gen";
import type * as bargauge from "@grafana/schema/dist/esm/raw/composable/bargauge/panelcfg/x/BarGaugePanelCfg_types.gen";
import type * as gauge from "@grafana/schema/dist/esm/raw/composable/gauge/panelcfg/x/GaugePanelCfg_types.gen";
import type * as heatmap from "@grafana/schema/dist/esm/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen";
import type * as stat from "@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen";
import type * as statetimeline from "@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen";
import type * as table from "@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen";
import type * as text from "@grafana/schema/dist/esm/raw/composable/text/panelcfg/x/TextPanelCfg_types.gen";
import type * as timeseries from "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";

/** A file in `dashboards`. */
export interface Dashboard extends Written<
  Omit<grafana.Dashboard, "annotations" | "panels" | "templating">
> {
  uid: string;
  title: string;
  description: string;
  annotations?: { list: Annotation[] };
  panels: (Panel | Row)[];
  templating?: { list: Variable[] };
}

type Panel =
  | PanelOf<"barchart", barchart.Options, barchart.FieldConfig>
  | PanelOf<"bargauge", bargauge.Options>
  | PanelOf<"gauge", gauge.Options>
  | PanelOf<"heatmap", heatmap.Options, heatmap.FieldConfig>
  | PanelOf<"stat", stat.Options>
  | PanelOf<"state-timeline", statetimeline.Options, statetimeline.FieldConfig & Gaps>
  | PanelOf<"table", table.Options, table.FieldConfig>
  | PanelOf<"text", text.Options>
  | PanelOf<"timeseries", timeseries.Options, timeseries.FieldConfig>;

interface Row extends Written<Omit<grafana.RowPanel, "panels">> {
  panels: Panel[];
}

interface PanelOf<Kind extends string, Options, Custom = {}> extends Written<
  Omit<grafana.Panel, "fieldConfig" | "links" | "options" | "targets" | "transformations">
> {
  id: number;
  type: Kind;
  gridPos: grafana.GridPos;
  options?: InPart<Options>;
  fieldConfig?: {
    defaults: FieldConfig & {
      custom?: keyof Custom extends never ? Record<string, never> : InPart<Custom>;
    };
    overrides: { matcher: Matcher; properties: Property<Custom>[] }[];
  };
  links?: Link[];
  targets?: Query[];
  transformations?: Transformation[];
}

interface FieldConfig extends Written<Omit<grafana.FieldConfig, "custom" | "links">> {
  links?: Link[];
}

/** What the panel asks for and its types leave out: whether a gap is drawn as one. */
type Gaps = Pick<timeseries.FieldConfig, "insertNulls" | "spanNulls">;

/** An override of `unit`, `custom.hideFrom` and the like, with a value of its own type. */
type Property<Custom> = OfFields<FieldConfig, ""> | OfFields<InPart<Custom>, "custom.">;

type OfFields<Fields, Prefix extends string> = {
  [Name in keyof Fields & string]-?: {
    id: `${Prefix}${Name}`;
    value: Exclude<Fields[Name], undefined>;
  };
}[keyof Fields & string];

type Matcher =
  | { id: "byFrameRefID" | "byName" | "byRegexp" | "byType"; options: string }
  | { id: "byNames"; options: { mode: "exclude" | "include"; names: string[]; prefix?: string } };

/** A link of a panel or of a value. */
interface Link {
  title: string;
  url: string;
  targetBlank?: boolean;
}

interface Query {
  refId: string;
  datasource: { type: "prometheus"; uid: string };
  expr: string;
  legendFormat?: string;
  format?: "heatmap" | "table" | "time_series";
  instant?: boolean;
  range?: boolean;
  interval?: string;
  editorMode?: "builder" | "code";
  exemplar?: boolean;
  hide?: boolean;
}

type Annotation =
  | (Written<Omit<grafana.AnnotationQuery, "target">> & {
      target?: { limit: number; matchAny: boolean; tags: string[]; type: "dashboard" };
    })
  | (Written<Omit<grafana.AnnotationQuery, "target">> & {
      expr?: string;
      target?: Query;
      step?: string;
      tagKeys?: string;
      textFormat?: string;
      titleFormat?: string;
      useValueForTime?: boolean | "on" | "off";
    });

/** Before a first value is chosen, `current` is empty. */
interface Variable extends Written<Omit<grafana.VariableModel, "current">> {
  current?: InPart<grafana.VariableOption>;
  definition?: string;
}

type Transformation = { disabled?: boolean; filter?: Matcher } & (
  | {
      id: "calculateField";
      options: {
        alias?: string;
        mode: "binary" | "reduceRow" | "unary";
        binary?: unknown;
        reduce?: unknown;
        unary?: unknown;
        replaceFields?: boolean;
      };
    }
  | { id: "filterByValue"; options: { filters: unknown[]; type: string; match: "all" | "any" } }
  | {
      id: "filterFieldsByName";
      options: Partial<Record<"exclude" | "include", { names?: string[]; pattern?: string }>>;
    }
  | { id: "groupBy"; options: { fields: Record<string, unknown> } }
  | { id: "joinByField"; options: { byField: string; mode: "inner" | "outer" | "outerTabular" } }
  | {
      id: "labelsToFields";
      options: { mode?: "columns" | "rows"; keepLabels?: string[]; valueLabel?: string };
    }
  | { id: "limit"; options: { limitField: number } }
  | { id: "merge"; options: {} }
  | {
      id: "organize";
      options: {
        excludeByName?: Record<string, boolean>;
        includeByName?: Record<string, boolean>;
        indexByName?: Record<string, number>;
        renameByName?: Record<string, string>;
      };
    }
  | {
      id: "reduce";
      options: {
        reducers: string[];
        mode?: "reduceFields" | "seriesToRows";
        includeTimeField?: boolean;
        labelsToFields?: boolean;
      };
    }
  | { id: "renameByRegex"; options: { regex: string; renamePattern: string } }
  | { id: "seriesToRows"; options: {} }
  | { id: "sortBy"; options: { sort: { field: string; desc?: boolean }[] } }
);

/** As a type is written in JSON: an enumeration of texts by its values. */
type Written<T> = T extends string
  ? `${T}`
  : T extends object
    ? { [Name in keyof T]: IsAny<T[Name]> extends true ? T[Name] : Written<T[Name]> }
    : T;

/** The same, where everything that is left out has a default. */
type InPart<T> = T extends string
  ? `${T}`
  : T extends unknown[]
    ? Written<T>
    : T extends object
      ? { [Name in keyof T]?: IsAny<T[Name]> extends true ? T[Name] : InPart<T[Name]> }
      : T;

type IsAny<T> = 0 extends 1 & T ? true : false;
